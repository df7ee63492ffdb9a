"""Many runs at once: small ones are taken in together, and nobody can tell."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agentdbg_runs import RUN, call, make_run
from support.wink_samples import make_bundle
from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.artifacts import SuiteRecorder
from vestige.collector.crash_detection import stamp_dead
from vestige.formats.protocol import Source
from vestige.home import Home
from vestige.limits import IMPORT_BATCH, MIB
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import VERSION, KnownRecord, Log, SpanOpen
from vestige.store.protocol import DEFAULT_RETENTION, RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path
from vestige.transfer.import_runs import import_source

SECRET = "sk-ant-api03-" + "q9Zr7Lk2" * 8


def run_id(number: int) -> str:
    return f"{number:08x}-1111-4111-8111-111111111111"


def make_many(data: Path, sizes: list[int]) -> None:
    """The number of events in each; the numbers are the runs' ids."""
    for number, size in enumerate(sizes):
        made = make_run(data / f"making-{number}", [call(name=f"call {n}") for n in range(size)])
        for path in made.iterdir():
            path.write_text(path.read_text().replace(RUN, run_id(number)))
        (data / "runs").mkdir(exist_ok=True)
        made.rename(data / "runs" / run_id(number))


@pytest.mark.slow
def test_small_and_large_ones_come_in_their_order_and_only_once(
    tmp_path: Path, store: SqliteStore
) -> None:
    sizes = [3, 1, 1_500, 2, 0, 700, 4] + [1] * 90
    make_many(tmp_path, sizes)

    first = list(import_path(store, tmp_path))
    again = list(import_path(store, tmp_path))

    assert [one.run_id for one in first] == [run_id(number) for number in range(len(sizes))]
    assert [one.records for one in first] == [2 * size + 3 for size in sizes]
    assert [(one.records, one.known) for one in again] == [(0, True)] * len(sizes)
    runs = {run.id: run for run in store.list_runs(RunFilter(limit=1_000))}
    assert [runs[run_id(number)].span_count for number in range(len(sizes))] == [
        size + 1 for size in sizes
    ]
    assert not any(writer.ended is None for writer in store.writers())


def test_bundles_of_which_one_cannot_be_read_come_in_their_order(
    tmp_path: Path, store: SqliteStore
) -> None:
    """The records of one transaction come before those of the next."""
    for second in (1, 2, 3):
        with SuiteRecorder(tmp_path, "demo", clock=FakeClock(second * 10**9)) as suite:
            suite.case("works").end()
    (tmp_path / "demo" / "19700101_000002" / "trace" / "events.jsonl").unlink()

    found = list(import_path(store, tmp_path))

    assert [one.path.name[-1] for one in found] == ["1", "2", "3"]
    assert [one.run_id is None for one in found] == [False, True, False]
    assert found[1].problems


def test_a_run_that_is_in_two_places_is_taken_in_once(tmp_path: Path, store: SqliteStore) -> None:
    make_many(tmp_path / "a", [2])
    make_many(tmp_path / "b", [2])
    both = [*import_path(store, tmp_path / "a"), *import_path(store, tmp_path / "b")]

    assert [(one.records, one.known) for one in both] == [(7, False), (0, True)]


def test_a_secret_in_one_of_many_is_masked(tmp_path: Path, home: Home, store: SqliteStore) -> None:
    make_many(tmp_path, [2] * 20)
    path = tmp_path / "runs" / run_id(7) / "events.jsonl"
    path.write_text(path.read_text().replace("call 1", f"call {SECRET}"))

    list(import_path(store, tmp_path))
    store.close()

    for file in home.root.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_an_old_run_is_kept_for_as_long_as_a_new_one_once_it_was_imported(
    tmp_path: Path, store: SqliteStore
) -> None:
    """Else a server's next round would take it away again."""
    make_many(tmp_path, [1, 1_500])
    list(import_path(store, tmp_path))
    now_ns, day_ns = SYSTEM.now_ns(), 86_400 * 10**9

    soon = store.prune(DEFAULT_RETENTION, now_ns + 6 * day_ns)
    later = store.prune(DEFAULT_RETENTION, now_ns + 8 * day_ns)

    assert (soon.runs, later.runs) == (0, 2)


@pytest.mark.slow
def test_large_bodies_are_not_held_all_at_once(tmp_path: Path, store: SqliteStore) -> None:
    """A run's first records are read before it is known whether it is small: only as far as it may
    be.
    """
    files = {f"w/{number}": b"%d " % number * MIB for number in range(10, 40)}
    path = make_bundle(_snapshots=[], _logs=[], _files=files).export(tmp_path / "x.wink")
    size = sum(map(len, files.values()))
    del files
    tracemalloc.start()
    try:
        (imported,) = import_path(store, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert imported.records == 2 * 30 + 2
    assert peak < size // 2


def test_a_collector_that_looks_between_two_batches_takes_an_import_for_no_dead_process(
    home: Home,
) -> None:
    """Its stamp would have the numbers of the records that are yet to come, and those would be
    lost.
    """
    home.make()
    own, writer, root = run_id(1), "a" * 16, "1" * 16
    stamped = []

    def records() -> Iterator[KnownRecord]:
        yield SpanOpen(VERSION, writer, 1, 10, own, root, "c", "run", "big")
        for seq in range(2, IMPORT_BATCH + 4):
            if seq == IMPORT_BATCH + 1:
                with SqliteStore.open(home.store) as collecting:
                    stamped.append(stamp_dead(home, collecting))
            yield Log(VERSION, writer, seq, 10 + seq, own, "c", "info", f"line {seq}", root)

    with SqliteStore.open(home.store) as store:
        taken = import_source(store, Source(own, writer, records()), Redactor())
        last = store.load_run(own).logs[-1]

    assert (stamped, taken) == ([0], IMPORT_BATCH + 3)
    assert last.message == f"line {IMPORT_BATCH + 3}"


def test_one_file_that_cannot_be_read_does_not_keep_the_others_out(
    tmp_path: Path, store: SqliteStore
) -> None:
    """Neither one that fails when it is opened, nor one that fails when it is read, nor one that
    is gone by then; each that was to be read says why."""
    folder = tmp_path / "bundles"
    folder.mkdir()
    (folder / "circle.wink").symlink_to("circle.wink")
    (folder / "memory.wink").symlink_to("/proc/self/mem")  # opens, and fails when it is read
    (folder / "memory.jsonl").symlink_to("/proc/self/mem")
    make_bundle().export(folder / "good.wink")

    taken = list(import_path(store, folder))

    assert {one.path.name for one in taken if one.run_id is None} == {"circle.wink", "memory.wink"}
    assert [one.path.name for one in taken if one.run_id is not None] == ["good.wink"]
    assert all(one.problems for one in taken if one.run_id is None)
