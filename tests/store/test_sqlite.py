"""The store as a file: made, migrated, refused, read without being written, and read in bulk."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import stat
from pathlib import Path

import pytest

from vestige.errors import NotFoundError, StoreError
from vestige.record.types import Log, SpanClose, SpanOpen
from vestige.store.protocol import Position, RunFilter
from vestige.store.sqlite import schema
from vestige.store.sqlite.sqlite_store import SqliteStore

RUN = "3d1957bd-0000-4000-8000-000000000001"
WRITER = "5f0c9a1e77b2c4d0"
T0 = 1_763_229_905_000_000_000


def fill(store: SqliteStore, spans: int = 3) -> None:
    records: list[SpanOpen | SpanClose | Log] = [
        SpanOpen(1, WRITER, 1, T0, RUN, "root", "agent", "run", "triage")
    ]
    for number in range(spans):
        span = f"{number:016x}"
        records.append(
            SpanOpen(
                1, WRITER, 3 * number + 2, T0, RUN, span, "agent", "tool", "t", "root", body="x"
            )
        )
        records.append(Log(1, WRITER, 3 * number + 3, T0, RUN, "agent", "info", "hello", span))
        records.append(SpanClose(1, WRITER, 3 * number + 4, T0, RUN, span, "ok", 5))
    store.append(records, Position(WRITER, 1, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_a_store_of_every_older_version_opens(tmp_path: Path, version: int) -> None:
    """A released step never changes, so any older file is brought to the present."""
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    for number in range(version):
        connection.executescript(f"{schema.STEPS[number]}\nPRAGMA user_version = {number + 1};")
    connection.execute(
        "INSERT INTO runs(run_id, name, started_ns, last_ns) VALUES (?, 'old', ?, ?)", (RUN, T0, T0)
    )
    connection.commit()
    connection.close()

    with SqliteStore.open(path) as store:
        (run,) = store.list_runs(RunFilter())
        found = schema.version(store._connection)

    assert (run.name, found) == ("old", schema.VERSION)


@pytest.mark.parametrize("stale", range(schema.VERSION))
def test_a_step_that_another_process_made_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: int
) -> None:
    """A server, its collector and a note may all be the first to open an older store."""
    path = tmp_path / "store.db"
    second = sqlite3.connect(path, isolation_level=None)
    SqliteStore.open(path).close()
    real, seen = schema.version, [stale, stale]  # before the other one was done
    monkeypatch.setattr(schema, "version", lambda db: seen.pop() if seen else real(db))

    schema.migrate(second, path)

    assert real(second) == schema.VERSION
    assert not second.in_transaction
    second.close()


@pytest.mark.parametrize("readonly", [True, False])
def test_a_newer_store_is_refused_by_name_and_left_alone(tmp_path: Path, readonly: bool) -> None:
    """A downgrade must say what to do, and must not touch what it does not understand."""
    path = tmp_path / "store.db"
    SqliteStore.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(StoreError, match=r"store\.db: store version 99.*Upgrade vestige") as caught:
        SqliteStore.open(path, readonly=readonly)

    assert caught.value.exit_code == 3
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (99,)


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be read " * 99, b"SQLite"]
)
@pytest.mark.parametrize("readonly", [True, False])
def test_a_file_that_is_no_store_is_a_store_error(
    tmp_path: Path, content: bytes, readonly: bool
) -> None:
    """Never a raw sqlite3 error, and the foreign file stays as it was."""
    path = tmp_path / "store.db"
    path.write_bytes(content)

    with pytest.raises(StoreError, match=r"store\.db"):
        SqliteStore.open(path, readonly=readonly)

    assert path.read_bytes() == content


def test_damage_that_shows_while_reading_is_a_store_error(tmp_path: Path) -> None:
    """A good header over bad pages opens; the first question finds out, and says so plainly."""
    path = tmp_path / "store.db"
    with SqliteStore.open(path) as store:
        fill(store, 2000)
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = random.Random(7).randbytes(len(data) - 4096 * 2)
    path.write_bytes(data)

    with (
        pytest.raises(StoreError, match=r"store\.db: cannot be"),
        SqliteStore.open(path, readonly=True) as store,
    ):
        store.load_run(store.list_runs(RunFilter(with_implicit=True))[0].id)


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    """Asking a question leaves no file behind."""
    with pytest.raises(StoreError):
        SqliteStore.open(tmp_path / "store.db", readonly=True)

    assert list(tmp_path.iterdir()) == []


def test_a_store_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    """Questions never change evidence."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        fill(store)

    with (
        pytest.raises(StoreError, match="readonly"),
        SqliteStore.open(tmp_path / "store.db", readonly=True) as store,
    ):
        store.pin(RUN)

    with SqliteStore.open(tmp_path / "store.db") as store:
        assert not store.list_runs(RunFilter())[0].pinned


def test_the_file_is_private(tmp_path: Path) -> None:
    """What an agent saw is its owner's alone."""
    SqliteStore.open(tmp_path / "store.db").close()

    assert stat.S_IMODE((tmp_path / "store.db").stat().st_mode) == 0o600


@pytest.mark.slow
def test_ten_thousand_spans_load_with_one_query_per_table(tmp_path: Path) -> None:
    """A skeleton is one pass over each table and a look at each writer, never a query per span."""
    statements: list[str] = []
    with SqliteStore.open(tmp_path / "store.db") as store:
        fill(store, 10_000)
        store._connection.set_trace_callback(statements.append)
        run = store.load_run(RUN)

    assert (len(run.spans), len(run.logs)) == (10_001, 10_000)
    assert [span.input.size_bytes for span in run.spans if span.input] == [1] * 10_000
    tables = [text.split(" FROM ")[-1].split("FROM ")[-1].split()[0] for text in statements]
    looks = tables.count("sheets")  # which of a thousand spans' bodies are the same
    assert sorted(set(tables)) == ["links", "logs", "runs", "sheets", "spans", "writers"]
    assert looks <= 2 * 11 and len(tables) == 5 + looks


def test_positions_are_told_and_forgotten(tmp_path: Path) -> None:
    """The offset lives with the rows; once a file is done it is let go."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        fill(store)
        before = dict(store.positions())
        store.delete_position(WRITER, 1)
        left = dict(store.positions())

    assert (before, left) == ({(WRITER, 1): 1000}, {})


def test_the_order_within_a_run_is_by_seq_and_not_by_the_clock(tmp_path: Path) -> None:
    """A clock that is set back in the middle of a run does not turn it round."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        store.append(
            [
                Log(1, WRITER, seq, T0 - seq * 10**9, RUN, "agent", "info", f"line {seq}")
                for seq in range(1, 6)
            ]
        )
        logs = store.load_run(RUN).logs

    assert [log.message for log in logs] == [f"line {seq}" for seq in range(1, 6)]


@pytest.mark.parametrize(
    ("run_filter", "names"),
    [
        (RunFilter(), ["d_1", "d%1", "c", "b", "a"]),
        (RunFilter(limit=2), ["d_1", "d%1"]),
        (RunFilter(failed=True), ["c", "b"]),
        (RunFilter(since_ns=T0 + 3), ["d_1", "d%1"]),
        (RunFilter(name="%"), ["d%1"]),
        (RunFilter(name="d_"), ["d_1"]),
        (RunFilter(conversation_id="c-2"), ["b"]),
    ],
)
def test_runs_are_listed_newest_first_by_what_is_asked(
    tmp_path: Path, run_filter: RunFilter, names: list[str]
) -> None:
    """Filters are exact; `%` and `_` in a name are characters, not wildcards."""
    statuses = {"a": "ok", "b": "error", "c": "interrupted", "d%1": "ok", "d_1": None}
    with SqliteStore.open(tmp_path / "store.db") as store:
        for number, (name, status) in enumerate(statuses.items()):
            run = f"{number:08d}-0000-4000-8000-000000000000"
            store.append(
                [
                    SpanOpen(
                        1,
                        WRITER,
                        number * 2 + 1,
                        T0 + number,
                        run,
                        "s",
                        "agent",
                        "run",
                        name,
                        None,
                        f"c-{number + 1}",
                    )
                ]
            )
            if status:
                store.append(
                    [SpanClose(1, WRITER, number * 2 + 2, T0 + number, run, "s", status, 0)]
                )
        found = [run.name for run in store.list_runs(run_filter)]

    assert found == names


def test_a_run_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    """With the path, so that one sees which store was asked."""
    with (
        SqliteStore.open(tmp_path / "store.db") as store,
        pytest.raises(NotFoundError, match=r"nope: no such run in .*store\.db"),
    ):
        store.load_run("nope")


def test_a_sync_that_failed_is_not_taken_for_done(tmp_path: Path) -> None:
    """The next call, before a journal is deleted, must not report that all is on disk."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        fill(store)
        next_file = os.dup(0)
        os.close(next_file)
        files, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, files_max))
        try:
            failures = []
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files") as caught:
                    store.sync()
                failures.append(caught.value)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files_max))
        store.sync()

    assert len(failures) == 2


@pytest.mark.slow
def test_the_cost_of_new_spans_does_not_grow_with_the_store(tmp_path: Path) -> None:
    """Span ids are random. Entries of new spans must still be on few pages of the indexes."""
    path = tmp_path / "store.db"
    rng = random.Random(7)

    def append(store: SqliteStore, first: int) -> int:
        """Store 2,000 spans. Return the bytes that were written to the log."""
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        spans = [
            SpanOpen(
                1,
                f"{run:016x}",
                at + 1,
                1_000 + at,
                f"3d1957bd-0000-4000-8000-{run:012x}",
                f"{rng.getrandbits(64):016x}",
                "agent",
                "tool",
                "search",
            )
            for run in range(first, first + 100)
            for at in range(20)
        ]
        store.append(spans)
        return path.with_name("store.db-wal").stat().st_size

    with SqliteStore.open(path) as store:
        store._connection.execute("PRAGMA wal_autocheckpoint = 0")
        written = [append(store, number * 100) for number in range(12)]

    assert written[-1] < 1.5 * written[1], written
