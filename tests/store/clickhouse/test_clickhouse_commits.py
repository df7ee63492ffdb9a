"""Commits to ClickHouse: all rows or none, once, after any crash and with many servers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import DAY_NS, T0, make_run, run_id_of, writer_of
from vestige.errors import StoreError
from vestige.fleet.server.receive import Receiver
from vestige.fleet.shipment import Shipment
from vestige.home import Home
from vestige.record.types import BodyInfo, SpanOpen
from vestige.store.clickhouse import writer as clickhouse_writer
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest import rollup_compaction
from vestige.store.clickhouse.ingest.commit_log import CommitConflictError
from vestige.store.open import open_store
from vestige.store.protocol import Position, RetentionPolicy, RunFilter, Store

pytestmark = pytest.mark.full


@pytest.fixture
def address(clickhouse_server: ClickHouseServer) -> Any:
    made = clickhouse_server.make_store()
    yield made
    clickhouse_server.release_store(made)


class Cut(Exception):
    """The process ends here."""


def cut_after(monkeypatch: pytest.MonkeyPatch, inserts: int) -> None:
    """Let a process die after some inserts, before the next one."""
    insert, left = Client.insert, [inserts]

    def insert_or_die(self: Client, *args: Any, **kwargs: Any) -> None:
        if not left[0]:
            raise Cut
        left[0] -= 1
        insert(self, *args, **kwargs)

    monkeypatch.setattr(Client, "insert", insert_or_die)


def as_plain(store: Store, number: int) -> tuple[Any, ...]:
    run = store.load_run(run_id_of(number))
    bodies = [store.read_body(each.id) for span in run.spans for each in (span.input,) if each]
    return (
        run.info.span_count,
        run.info.log_count,
        [(span.id, span.status) for span in run.spans],
        [log.message for log in run.logs],
        len(run.links),
        bodies,
    )


def test_a_writer_that_dies_at_any_insert_leaves_nothing_and_loses_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(address) as store:
        store.append(make_run(1))
        expected = as_plain(store, 1)
        for inserts in range(9):  # one of the attempt, seven of rows, one of the commit
            number = inserts + 2
            with monkeypatch.context() as patch, pytest.raises(Cut):
                cut_after(patch, inserts)
                store.append(make_run(number), Position(writer_of(number), 1, 10))
            assert not store.has_run(run_id_of(number))
            assert store.append(make_run(number), Position(writer_of(number), 1, 10)) == 7
            assert store.append(make_run(number)) == 0
            found = as_plain(store, number)
            assert found[0] == expected[0] and len(found[2]) == len(expected[2])
            assert (found[1], found[4], found[5]) == (expected[1], expected[4], expected[5])
        assert store.sizes().spans == 30
        (total,) = store.sum_rollups("tool", None)
        assert total.count == 10
        assert len(store.list_runs(RunFilter())) == 10


def test_many_servers_write_at_once_and_each_record_is_stored_once(address: str) -> None:
    """Two servers receive the same records, as after a request that was repeated."""

    def write(numbers: range) -> None:
        with open_store(address) as store:
            for number in numbers:
                store.append(make_run(number))

    threads = [
        threading.Thread(target=write, args=(range(first, first + 6),)) for first in (1, 4, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_store(address, readonly=True) as store:
        assert sorted(store.run_ids()) == [run_id_of(number) for number in range(1, 10)]
        assert [as_plain(store, number)[0] for number in range(1, 10)] == [3] * 9
        assert {run.short_id for run in store.list_runs(RunFilter())} == {
            f"r{number}" for number in range(1, 10)
        }
        (total,) = store.sum_rollups("tool", None)
        assert total.count == 9


def test_a_killed_server_keeps_every_commit_that_it_acknowledged(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    server = ClickHouseServer(tmp_path / "data")
    try:
        address = server.make_store()
        acknowledged = 0
        for number in range(1, 4):
            with open_store(address) as store:
                store.append(make_run(number))
                acknowledged += 1
            server.kill()
            with pytest.raises(StoreError), open_store(address) as store:
                store.append(make_run(99))
            server.start()
        with open_store(address) as store:
            assert len(store.run_ids()) == acknowledged
            assert [store.append(make_run(number)) for number in range(1, 5)] == [0, 0, 0, 7]
    finally:
        server.kill()


_WRITE = """
import sys
sys.path.insert(0, {tests!r})
from support.stored_runs import make_run
from vestige.store.open import open_store
with open_store({address!r}) as store:
    for number in range(int(sys.argv[1]), 1000):
        store.append(make_run(number))
        print(number, flush=True)
"""


def test_a_writer_that_is_killed_has_lost_no_record_that_it_acknowledged(address: str) -> None:
    tests = str(Path(__file__).parents[2])
    script = textwrap.dedent(_WRITE).format(tests=tests, address=address)
    last = 0
    for kill_after in (1, 2, 3):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(last + 1)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(kill_after):
            last = int(child.stdout.readline())
        child.kill()
        # A commit may have been made and not yet acknowledged.
        acknowledged = [int(line) for line in child.stdout.read().split()]
        child.wait()
        last = max([last, *acknowledged])
        with open_store(address) as store:
            assert store.has_run(run_id_of(last))
            store.append(make_run(last + 1))
    with open_store(address, readonly=True) as store:
        runs = store.list_runs(RunFilter())
        assert [run.span_count for run in runs] == [3] * len(runs)
        (total,) = store.sum_rollups("tool", None)
        assert total.count == len(runs)


def test_long_bodies_survive_a_commit_that_is_repeated(
    address: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server commits in between, so all operations of the transaction run again."""
    monkeypatch.setenv("VESTIGE_STORE", address)
    body = b"long " * 20_000
    info = BodyInfo(spilled_bytes=len(body), sha256=sha256(body).hexdigest())
    opened = SpanOpen(
        1, writer_of(1), 1, 1_000, run_id_of(1), "a" * 16, "agent", "run", "x", body_info=info
    )
    shipment = Shipment([opened], {(writer_of(1), 1): body})
    conflicts = [CommitConflictError()]
    commit = clickhouse_writer.commit

    def conflict_once(*args: Any) -> None:
        if conflicts:
            raise conflicts.pop()
        commit(*args)

    monkeypatch.setattr(clickhouse_writer, "commit", conflict_once)
    with Receiver(home) as receiver, receiver.transaction():
        receiver.store_now(shipment, "default")
    with open_store(address, readonly=True) as store:
        (span,) = store.load_run(run_id_of(1)).spans
        assert span.input is not None and span.input.id is not None
        assert store.read_body(span.input.id) == body
    assert not conflicts


def test_rollups_are_added_up_and_their_sums_stay(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daily sums outlive the runs, and are stored as few rows, however many commits there were."""
    monkeypatch.setattr(rollup_compaction, "ROWS_MIN", 1)
    policy = RetentionPolicy(age_max_s=86_400.0, body_bytes_max=None)

    def read_sums(store: Store) -> Any:
        return [store.sum_rollups(by, None) for by in ("name", "day", "model", "tool")]

    with open_store(address) as store, open_store(address, readonly=True) as reader:
        for number in range(1, 6):
            store.append(make_run(number), tenant=f"team-{number % 2}")
        before, rows = read_sums(store), count_rows(store)
        with reader.snapshot():
            store.prune(policy, T0)
            assert read_sums(reader) == before
        after_first = count_rows(store)
        assert read_sums(store) == read_sums(reader) == before
        for number in range(6, 10):
            store.append(make_run(number))
        grown = read_sums(store)
        store.prune(policy, T0 + 10 * DAY_NS)
        assert (store.run_ids(), read_sums(store)) == ([], grown)
        assert sum(total.count for total in grown[3]) == 9
    with open_store(address, readonly=True, tenant="team-1") as tenant:
        (total,) = tenant.sum_rollups("tool", None)
        assert total.count == 3
    assert after_first < rows


def test_compaction_that_dies_or_meets_another_commit_changes_no_sum(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = RetentionPolicy(age_max_s=None, body_bytes_max=None)
    with open_store(address) as store:
        for number in range(1, 5):
            store.append(make_run(number))
        expected = store.sum_rollups("name", None)
        for inserts in range(3):  # the attempt, the rows, the commit
            with monkeypatch.context() as patch, pytest.raises(Cut):
                patch.setattr(rollup_compaction, "ROWS_MIN", 1)
                cut_after(patch, inserts)
                store.prune(policy, T0)
            assert store.sum_rollups("name", None) == expected
        conflicts = [CommitConflictError()]
        commit = clickhouse_writer.commit

        def conflict_once(*args: Any) -> None:
            if conflicts:
                raise conflicts.pop()
            commit(*args)

        monkeypatch.setattr(rollup_compaction, "ROWS_MIN", 1)
        monkeypatch.setattr(clickhouse_writer, "commit", conflict_once)
        store.prune(policy, T0)
        assert store.sum_rollups("name", None) == expected and not conflicts


def count_rows(store: Any) -> int:
    view = store._view()
    sql = f"SELECT count() FROM rollups WHERE {view.visible('rollups')}"
    return int(store._query(view, sql)[0][0])
