"""Journals are taken in once, whole lines only, and let go when nobody can write to them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vestige
from vestige._runtime import file_locks
from vestige.collector.journal_ingest import delete_leftovers, ingest_journals, read_spill
from vestige.home import Home
from vestige.journal.writer import JournalWriter
from vestige.limits import BODY_INLINE_MAX
from vestige.record.codec import render_line
from vestige.record.types import Log
from vestige.recorder import Recorder
from vestige.store.protocol import Position
from vestige.store.sqlite.sqlite_store import SqliteStore

WRITER = "5f0c9a1e77b2c4d0"
RUN = "3d1957bd-0000-4000-8000-000000000001"


@pytest.fixture
def store(home: Home) -> Iterator[SqliteStore]:
    home.make()

    def spilled(writer: str, seq: int, info: object) -> bytes | None:
        return read_spill(home, writer, seq, info)  # type: ignore[arg-type]

    with SqliteStore.open(home.store, read_spill=spilled) as store:
        yield store


def lines(*numbers: int) -> bytes:
    return b"".join(
        render_line(Log(1, WRITER, seq, seq, RUN, "agent", "info", f"line {seq}"))
        for seq in numbers
    )


def finished(home: Home, data: bytes, generation: int = 1) -> Path:
    """A journal that no living process writes to."""
    path = home.journal_file(WRITER, generation)
    path.write_bytes(data)
    return path


def messages(store: SqliteStore) -> list[str]:
    return [log.message for log in store.load_run(RUN).logs]


def malformed(store: SqliteStore) -> int:
    return sum(writer.malformed for writer in store.writers())


def test_a_finished_journal_is_taken_in_and_deleted(home: Home, store: SqliteStore) -> None:
    """Once nothing more can come and all of it is stored, the file goes, and its position too."""
    path = finished(home, lines(1, 2, 3))

    taken = ingest_journals(home, store)

    assert (taken.records, taken.malformed, taken.files_done) == (3, 0, 1)
    assert messages(store) == ["line 1", "line 2", "line 3"]
    assert not path.exists()
    assert dict(store.positions()) == {}


def test_a_journal_whose_writer_lives_is_read_and_kept(home: Home, store: SqliteStore) -> None:
    """The lock says that more may come, so the file stays, however often it is read."""
    journal = JournalWriter(home, WRITER)
    journal.write(lines(1))
    first = ingest_journals(home, store)
    journal.write(lines(2))
    second = ingest_journals(home, store)
    still_there = journal.path.exists()
    journal.close()
    third = ingest_journals(home, store)

    assert [taken.records for taken in (first, second, third)] == [1, 1, 0]
    assert [taken.files_done for taken in (first, second, third)] == [0, 0, 1]
    assert still_there
    assert not journal.path.exists()


def test_a_journal_that_comes_back_is_known_by_its_identities(
    home: Home, store: SqliteStore
) -> None:
    """Offsets may be lost, or a file restored from a backup: no record is taken in twice."""
    finished(home, lines(1, 2, 3))
    ingest_journals(home, store)
    finished(home, lines(1, 2, 3, 4))

    taken = ingest_journals(home, store)

    assert taken.records == 1
    assert messages(store) == [f"line {number}" for number in range(1, 5)]


def test_lost_positions_of_a_living_journal_double_nothing(home: Home, store: SqliteStore) -> None:
    """Even if every offset is forgotten, the next pass reads again and stores nothing new."""
    journal = JournalWriter(home, WRITER)
    journal.write(lines(1, 2))
    ingest_journals(home, store)
    store._connection.execute("DELETE FROM journals")

    taken = ingest_journals(home, store)
    journal.close()

    assert taken.records == 0
    assert messages(store) == ["line 1", "line 2"]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json at all",
        b"{}",
        b'{"kind":"log"}',
        b'{"kind":"log","v":1,"writer":7}',
        b"\xff\xfe\x00\x01",
        b'{"kind":"new","writer":"w","seq":99999999999999999999999}',
        b'{"kind":"new","writer":"w","seq":-1}',
        b"[" * 5000,
        b'"' + b"x" * 9_000_000 + b'"',
    ],
    ids=["text", "empty", "fields", "type", "bytes", "huge", "negative", "deep", "long"],
)
def test_a_malformed_line_is_counted_and_never_stops_the_tail(
    home: Home, store: SqliteStore, bad: bytes
) -> None:
    """Bytes from outside may be anything; the lines around them are ingested."""
    finished(home, lines(1) + bad + b"\n" + lines(2) + b"\n" + lines(3))

    taken = ingest_journals(home, store)

    assert (taken.records, taken.malformed) == (3, 1)
    assert messages(store) == ["line 1", "line 2", "line 3"]
    assert malformed(store) == 1


def test_absurd_numbers_do_not_stop_the_tail(home: Home, store: SqliteStore) -> None:
    """Values that are valid one by one but whose sum no database holds are taken in."""
    opening = (
        b'{"kind":"span-open","v":1,"writer":"w","seq":%d,"time_ns":1,"run_id":"r",'
        b'"span_id":"%d","component":"c","type":"t","name":"n"}\n'
    )
    closing = (
        b'{"kind":"span-close","v":1,"writer":"w","seq":%d,"time_ns":1,"run_id":"r",'
        b'"span_id":"%d","status":"ok","duration_ns":4611686018427387904}\n'
    )
    finished(home, b"".join(opening % (n, n) + closing % (n + 50, n) for n in range(1, 9)))

    taken = ingest_journals(home, store)

    assert (taken.records, taken.malformed) == (16, 0)


def test_a_line_still_being_written_waits_while_its_writer_lives(
    home: Home, store: SqliteStore
) -> None:
    """A torn tail is neither taken nor skipped: once finished, it is read whole."""
    journal = JournalWriter(home, WRITER)
    complete = lines(1)
    os.pwrite(journal._file.fd, complete[:40], 0)
    before = ingest_journals(home, store)
    os.pwrite(journal._file.fd, complete[40:], 0)
    after = ingest_journals(home, store)
    journal.close()

    assert (before.records, before.malformed) == (0, 0)
    assert (after.records, after.malformed) == (1, 0)


class KilledAfterCommit(SqliteStore):
    """The collector dies right after it has counted a bad line, before it deletes the file."""

    def append(self, records: Any, position: Any = None, malformed: int = 0) -> int:
        super().append(records, position, malformed)
        raise KeyboardInterrupt if malformed else StopIteration


def test_the_torn_line_of_a_dead_writer_is_lost_and_counted_once(
    home: Home, store: SqliteStore
) -> None:
    """A power cut may tear the last line; dying between commit and deletion counts it no twice."""
    path = finished(home, lines(1) + lines(2)[:30])
    with SqliteStore.open(home.store) as first, pytest.raises(StopIteration):
        ingest_journals(home, KilledAfterCommit(first._connection, home.store, first._read_spill))
    with SqliteStore.open(home.store) as second, pytest.raises(KeyboardInterrupt):
        ingest_journals(home, KilledAfterCommit(second._connection, home.store, second._read_spill))
    still_there = path.exists()

    again = ingest_journals(home, store)

    assert still_there
    assert (again.records, again.malformed, again.files_done) == (0, 0, 1)
    assert malformed(store) == 1
    assert messages(store) == ["line 1"]


def test_what_is_deleted_was_on_disk_in_the_store_before(
    home: Home, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the records of a deleted journal are in the store."""
    happened: list[str] = []
    fsync, unlink = os.fsync, Path.unlink

    def synced(file: int) -> None:
        fsync(file)
        log = os.stat(f"{home.store}-wal")
        happened.append("synced" if os.path.samestat(os.fstat(file), log) else "another")

    def deleted(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        happened.append("deleted")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "unlink", deleted)
    finished(home, lines(1, 2), 1)
    finished(home, lines(3), 2)
    spilled = home.spilled_body(WRITER, 3)
    spilled.write_bytes(b"long")
    ingest_journals(home, store)

    assert [each for each in happened if each != "another"] == [
        "synced",
        "deleted",  # the first journal
        "synced",
        "deleted",
        "deleted",  # the second one, and the body that belongs to it
    ]
    assert not spilled.exists() and messages(store) == ["line 1", "line 2", "line 3"]


def test_a_record_behind_the_torn_rest_of_another_is_found(home: Home, store: SqliteStore) -> None:
    """A short write on a full disk ends in the middle of a line; the next record is whole."""
    finished(home, lines(1) + lines(2)[:30] + lines(3))

    ingest_journals(home, store)

    assert messages(store) == ["line 1", "line 3"]


def test_a_spilled_body_is_stored_and_its_file_deleted(home: Home, store: SqliteStore) -> None:
    """The file lives exactly until its record is committed with its bytes."""
    text = "long " * BODY_INLINE_MAX
    with Recorder(home) as recorder, recorder.run("agent") as run:
        run.span("read", type="tool", body=text).end()
        waiting = list(home.bodies.iterdir())
        ingest_journals(home, store)
        left = list(home.bodies.iterdir())
        loaded = store.load_run(run.run_id)
    (body,) = [span.input for span in loaded.spans if span.input]

    assert len(waiting) == 1
    assert left == []
    assert store.read_body(body.id or 0).decode() == text


def test_a_spilled_body_that_is_gone_or_changed_is_said_to_be_lost(
    home: Home, store: SqliteStore
) -> None:
    """The record is taken in all the same, with the size, and a word on what is missing."""
    text = "long " * BODY_INLINE_MAX
    with Recorder(home) as recorder, recorder.run("agent") as run:
        run.span("gone", type="tool", body=text).end()
        run.span("changed", type="tool", body=text).end()
        first, second = sorted(home.bodies.iterdir(), key=lambda path: int(path.name.split("-")[1]))
        first.unlink()
        second.write_bytes(b"other bytes")
        ingest_journals(home, store)
        loaded = store.load_run(run.run_id)
    bodies = [span.input for span in loaded.spans if span.input]

    assert [(body.id, body.size_bytes, body.cut) for body in bodies] == [
        (None, len(text), "its file is missing")
    ] * 2


def test_what_a_kill_left_between_commit_and_deletion_is_swept(
    home: Home, store: SqliteStore
) -> None:
    """Leftover bodies of stored records go; one whose record has not arrived stays."""
    finished(home, lines(1))
    ingest_journals(home, store)
    home.spilled_body(WRITER, 1).write_bytes(b"stored long ago")
    home.spilled_body(WRITER, 2).write_bytes(b"its line is still to come")

    delete_leftovers(home, store)

    assert [path.name for path in home.bodies.iterdir()] == [f"{WRITER}-2"]


def test_foreign_files_in_the_journal_folder_are_left_alone(home: Home, store: SqliteStore) -> None:
    """Only `<writer>.<generation>.ndjson` is ours."""
    for name in ("notes.txt", "a.b.ndjson", ".hidden.000001.ndjson"):
        (home.journal / name).write_bytes(lines(1))

    taken = ingest_journals(home, store)

    assert (taken.records, taken.files_done) == (0, 0)
    assert len(list(home.journal.iterdir())) == 3
    assert not file_locks.is_held(home.journal / "notes.txt")


def test_a_position_whose_file_is_gone_is_forgotten(home: Home, store: SqliteStore) -> None:
    """A pass may be killed after it deleted a journal and before it said so."""
    finished(home, lines(1)).unlink()
    store.append([], Position(WRITER, 1, 12))

    ingest_journals(home, store)

    assert store.positions() == {}


def test_a_body_that_cannot_be_read_now_waits_with_its_record(
    home: Home, store: SqliteStore
) -> None:
    """Only a file that is gone is lost. What others wrote is taken in meanwhile."""
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        run.child("chat", type="llm", body="long " * BODY_INLINE_MAX).end()
    (body,) = home.bodies.iterdir()
    finished(home, lines(1))
    aside = body.rename(home.root / "aside")
    body.symlink_to(body)  # not even root can open that

    with pytest.raises(OSError, match="symbolic links"):
        ingest_journals(home, store)
    meanwhile = messages(store)
    aside.replace(body)
    ingest_journals(home, store)

    assert meanwhile == ["line 1"]
    (stored,) = [span.input for span in store.load_run(run.run_id).spans if span.input]
    assert stored.id is not None
    assert store.read_body(stored.id).startswith(b"long long")


def test_a_process_that_is_out_of_files_loses_no_body(home: Home) -> None:
    """The pass fails, nothing is let go, and the next one brings it."""
    home.make()
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        run.child("chat", type="llm", body="long " * BODY_INLINE_MAX).end()
    program = f"""
import os, resource
from vestige.collector.loop import hold
from vestige.home import get_home
from vestige.collector import journal_ingest as take
home = get_home({str(home.root)!r})
read = take.read_spill
with hold(home) as collector:
    def out_of_files(*asked):
        # As many as are open now: the next open of any file fails.
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard_limit))
        return read(home, *asked)
    collector.store._read_spill = out_of_files
    try:
        collector.tick()
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    with vestige.open(home.root) as debugger:
        spans = debugger.store.load_run(run.run_id).spans
        (stored,) = [span.input for span in spans if span.input]

    assert done.stdout.split() == [str(errno.EMFILE)], done.stderr
    assert stored.id is not None
