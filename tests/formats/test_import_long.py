"""Long runs of other tools: imported in bounded batches, and complete after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agentdbg_runs import RUN, call, make_run
from support.programs import WAIT_S
from vestige.errors import UnreadableError
from vestige.formats.protocol import Source
from vestige.limits import IMPORT_BATCH
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import VERSION, KnownRecord, Log, SpanOpen
from vestige.store.open import open_store
from vestige.store.protocol import Store
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path
from vestige.transfer.import_runs import import_source

SECRET = "sk-ant-api03-" + "q9Zr7Lk2" * 8
CALLS = 2_500


def test_a_long_run_is_redacted_and_its_damage_is_reported(
    store: SqliteStore, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = [call(name=f"call {n}", duration_ms=n) for n in range(CALLS)]
    calls[700]["payload"]["args"] = {"key": SECRET}
    calls[800]["name"] = f"call {SECRET}"
    calls[900]["payload"]["result"] = f"{SECRET} " + "and more " * 100
    calls[1_900]["name"] = "half \ud800 of a character"
    run = make_run(tmp_path, calls, end=False, status="running")
    with open(run / "events.jsonl", "a") as file:
        file.write('no event\n{"event_type": 5}\n[1]\n{"torn')
    counts: list[int] = []

    (first,) = import_path(store, run, on_progress=counts.append)
    (again,) = import_path(store, run)

    assert (first.run_id, first.known, again.records, again.known) == (RUN, False, 0, True)
    assert sum(counts) == first.records >= 2 * CALLS
    assert len(first.problems) == len(again.problems) > 3
    assert SECRET.encode() not in store.path.read_bytes()


def test_the_rest_of_a_file_that_has_grown_is_added(store: SqliteStore, tmp_path: Path) -> None:
    run = make_run(tmp_path, [call() for _ in range(CALLS)], end=False, status="running")
    (first,) = import_path(store, run)
    with open(run / "events.jsonl", "a") as file:
        file.writelines(json.dumps(call()) + "\n" for _ in range(10))

    (second,) = import_path(store, run)

    assert first.records == 2 * CALLS + 4
    assert (second.records, second.known) == (20, True)


def test_an_error_of_the_reader_leaves_what_was_stored(store: Store) -> None:
    def records() -> Iterator[KnownRecord]:
        yield SpanOpen(VERSION, "a" * 16, 1, 1, "r", "s", "c", "run", "long")
        for seq in range(2, IMPORT_BATCH + 2):
            yield Log(VERSION, "a" * 16, seq, seq, "r", "c", "info", "line", "s")
        raise UnreadableError("events.jsonl: cannot be read.")

    with pytest.raises(UnreadableError):
        import_source(store, Source("r", "a" * 16, records()), Redactor())

    assert store.load_run("r").info.log_count == IMPORT_BATCH - 1
    assert [writer.ended for writer in store.writers()] == ["imported"]


_KILLED = """
import os, signal, sys
from pathlib import Path
from vestige.store.open import open_store
from vestige.transfer import import_path
with open_store(Path(sys.argv[1])) as store:
    def die(count):
        os.kill(os.getpid(), 9)
    for _ in import_path(store, Path(sys.argv[2]), on_progress=die):
        pass
"""


def test_a_killed_import_is_completed_by_repeating_it(tmp_path: Path) -> None:
    run = make_run(tmp_path, [call(payload={"args": {"n": n}}) for n in range(IMPORT_BATCH)])
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "killed.db"), str(run)],
        timeout=WAIT_S,
        check=False,
    )
    with open_store(tmp_path / "killed.db") as store, open_store(tmp_path / "plain.db") as plain:
        before = store.load_run(RUN).info.span_count
        list(import_path(store, run))
        list(import_path(plain, run))

        assert killed.returncode == -signal.SIGKILL
        assert 0 < before < plain.load_run(RUN).info.span_count
        assert _texts(store) == _texts(plain)


def _texts(store: Store) -> list[tuple[str, str | None, bytes | None]]:
    return [
        (span.id, span.status, store.read_body(span.input.id) if span.input else None)  # type: ignore[arg-type]
        for span in store.load_run(RUN).spans
    ]
