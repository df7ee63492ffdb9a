"""`vestige store copy`: all runs of a file, under the same ids, even after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import T0, make_run, run_id_of
from vestige.errors import StoreError, UsageError
from vestige.record.note import Note
from vestige.store.clickhouse import copy_store
from vestige.store.open import copy_to_server, open_store, verify_server_copy
from vestige.store.protocol import RunFilter

pytestmark = pytest.mark.full


@pytest.fixture
def address(clickhouse_server: ClickHouseServer) -> Any:
    made = clickhouse_server.make_store()
    yield made
    clickhouse_server.release_store(made)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        for number in range(1, 6):
            answer = f"answer {number} " * (10 if number % 2 else 5_000)
            store.append(
                make_run(number, answer=answer), tenant="acme" if number == 3 else "default"
            )
        store.add_note(Note(id="n1", run_id=run_id_of(2), text="look", created_ns=T0))
        store.pin(run_id_of(4))
    return path


def test_a_copy_that_is_interrupted_goes_on(
    source: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_store, "ROWS_PER_STEP", 4)
    steps = copy_to_server(source, address)
    next(steps), next(steps), next(steps)
    steps.close()  # type: ignore[attr-defined]
    again = list(copy_to_server(source, address))

    assert again and list(copy_to_server(source, address)) == []
    assert verify_server_copy(source, address) == {
        "runs": (5, 5),
        "spans": (15, 15),
        "logs": (5, 5),
    }
    with open_store(source, readonly=True) as before, open_store(address) as after:
        assert after.list_runs(RunFilter()) == before.list_runs(RunFilter())
        assert after.sum_rollups("name", None) == before.sum_rollups("name", None)
        assert after.notes(run_id_of(2)) == before.notes(run_id_of(2))
        assert after.append(make_run(5)) == 0 and after.append(make_run(6)) == 7
        assert after.find_runs(run_id_of(6))[0].short_id == "r6"
    with open_store(address, readonly=True, tenant="acme") as own:
        assert own.run_ids() == [run_id_of(3)]


def test_a_difference_is_found(source: Path, address: str) -> None:
    list(copy_to_server(source, address))
    with open_store(source) as store:
        store.append(make_run(7))

    with pytest.raises(StoreError, match="expected 6"):
        verify_server_copy(source, address)


def test_a_target_with_runs_is_refused(source: Path, address: str) -> None:
    with open_store(address) as store:
        store.append(make_run(1))

    with pytest.raises(UsageError, match="not empty"):
        list(copy_to_server(source, address))
