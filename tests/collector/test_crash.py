"""Who is stamped: a writer that is gone and whose journal is read to its end. Nobody else."""

from __future__ import annotations

import os
import threading
from time import sleep

import msgspec
import pytest

from support.programs import ReadRuns, RunProgram
from vestige.collector.crash_detection import Exit, stamp_dead
from vestige.collector.journal_ingest import ingest_journals
from vestige.collector.loop import hold
from vestige.home import Home
from vestige.journal.writer import JournalWriter
from vestige.query.views.show import stamps
from vestige.record.codec import render_line
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

WRITER = "5f0c9a1e77b2c4d0"
ABOVE = "aaaaaaaaaaaaaaaa"
RUN = "3d1957bd-0000-4000-8000-000000000001"
T0 = 1_763_229_905_000_000_000


def records(supervisor: str | None = None) -> list[AnyRecord]:
    attributes = {"pid": 4242, **({"supervisor": supervisor} if supervisor else {})}
    return [
        SpanOpen(1, WRITER, 1, T0, RUN, "root", "vestige", "run", "agent.py"),
        SpanOpen(
            1,
            WRITER,
            2,
            T0,
            RUN,
            "proc",
            "vestige",
            "process",
            "agent.py",
            "root",
            None,
            attributes,
        ),
        SpanOpen(1, WRITER, 3, T0, RUN, "tool", "agent", "tool", "search", "root"),
    ]


def write(home: Home, writer: str, *found: AnyRecord) -> JournalWriter:
    journal = JournalWriter(home, writer, fsync="none")
    for record in found:
        journal.write(render_line(record))
    return journal


def test_a_living_writer_is_not_stamped(home: Home, store: SqliteStore) -> None:
    """Open spans of a process that lives are just open."""
    journal = write(home, WRITER, *records())
    ingest_journals(home, store)

    stamped = stamp_dead(home, store)
    journal.close()

    assert stamped == 0
    assert [span.status for span in store.load_run(RUN).spans] == [None, None, None]


def test_a_dead_writer_is_stamped_once(home: Home, store: SqliteStore) -> None:
    """The line is inside the last open span, the closes follow, and again changes nothing."""
    write(home, WRITER, *records()).close()
    ingest_journals(home, store)

    first, second = stamp_dead(home, store), stamp_dead(home, store)
    run = store.load_run(RUN)

    assert (first, second) == (1, 0)
    assert stamps(run) == ["process exited unexpectedly after tool search"]
    assert [log.span_id for log in run.logs] == ["tool"]
    assert [span.status for span in run.spans] == ["interrupted"] * 3
    assert run.info.outcome == "interrupted"
    assert [writer.ended for writer in store.writers()] == ["interrupted"]


def test_a_writer_that_spoke_and_left_since_we_read_is_not_stamped(
    home: Home, store: SqliteStore
) -> None:
    """Between our reading and our asking, it may write its last records and exit in peace.

    A stamp would take their numbers, and they would be passed over as already seen.
    """
    journal = write(home, WRITER, *records())
    ingest_journals(home, store)
    for seq, span in ((4, "tool"), (5, "proc"), (6, "root")):
        journal.write(render_line(SpanClose(1, WRITER, seq, T0 + seq, RUN, span, "ok", seq)))
    journal.close()

    stamped = stamp_dead(home, store)
    ingest_journals(home, store)
    stamp_dead(home, store)
    run = store.load_run(RUN)

    assert stamped == 0
    assert [span.status for span in run.spans] == ["ok"] * 3
    assert stamps(run) == []


def test_no_record_of_a_writer_that_was_taken_for_dead_is_lost(
    home: Home, store: SqliteStore
) -> None:
    """A bulk close of descriptors frees the lock of a journal, and its writer continues."""
    write(home, WRITER, *records()).close()
    ingest_journals(home, store)
    assert stamp_dead(home, store) == 1
    lines = [
        Log(1, WRITER, seq, T0 + seq, RUN, "agent", "info", f"line {seq}", "tool")
        for seq in range(4, 9)
    ]
    closed = SpanClose(1, WRITER, 9, T0 + 9, RUN, "tool", "ok", 9)
    journal = write(home, WRITER, *lines, closed)

    ingest_journals(home, store)
    stamped = stamp_dead(home, store)
    journal.close()
    run = store.load_run(RUN)

    assert stamped == 0
    assert [log.message for log in run.logs] == [f"line {seq}" for seq in range(4, 9)]
    assert [span.status for span in run.spans] == [None, None, "ok"]
    assert (run.info.outcome, run.info.log_count, run.info.error_count) == ("running", 5, 0)
    assert [writer.ended for writer in store.writers()] == [None]
    assert store.writers()[0].missing == 0


def test_a_writer_that_dies_after_it_was_taken_for_dead_is_stamped_again(
    home: Home, store: SqliteStore
) -> None:
    write(home, WRITER, *records()).close()
    ingest_journals(home, store)
    stamp_dead(home, store)
    first = store.load_run(RUN).info
    another = SpanOpen(1, WRITER, 4, T0 + 4, RUN, "more", "agent", "tool", "fetch", "root")
    write(home, WRITER, another).close()

    ingest_journals(home, store)
    stamped = [stamp_dead(home, store), stamp_dead(home, store)]
    run = store.load_run(RUN)

    assert stamped == [1, 0]
    assert stamps(run) == ["process exited unexpectedly after tool fetch"]
    assert [span.status for span in run.spans] == ["interrupted"] * 4
    assert run.info.error_count == first.error_count + 1


def test_an_idle_program_that_closes_all_descriptors_is_not_shown_as_crashed(
    run_program: RunProgram, home: Home
) -> None:
    """The collector passes while the lock is free; the program records nothing afterwards."""
    source = """
import os, sys, time, vestige
recorder = vestige.Recorder()
run = recorder.run("agent")
os.closerange(3, 4096)
with open(sys.argv[1], "w"):
    pass
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
os._exit(0)
"""
    closed, done = home.root.parent / "closed", home.root.parent / "done"
    found: list[str] = []

    def collect() -> None:
        while not closed.exists():
            sleep(0.001)
        with hold(home) as collector:
            assert collector is not None
            for _ in range(200):
                collector.tick()
                runs = collector.store.list_runs(RunFilter(name_is="agent"))
                found.append(runs[0].outcome if runs else "")
                if len(set(found)) > 1 and found[-1] == "running":
                    break
                sleep(0.02)
        done.touch()

    thread = threading.Thread(target=collect)
    thread.start()
    run_program(source, str(closed), str(done))
    thread.join()

    assert found[-1] == "running"


def supervised(home: Home, ending: SpanClose | None = None) -> JournalWriter:
    """A child that died below a `vestige run`; the supervisor's journal, still open."""
    _, *below = records(supervisor=ABOVE)
    write(home, WRITER, *below).close()
    root = SpanOpen(1, ABOVE, 1, T0, RUN, "root", "vestige", "run", "agent.py")
    return write(home, ABOVE, root, *([ending] if ending else []))


def ending(**how: int | str) -> SpanClose:
    """What a supervisor writes when its child is gone, five seconds after it began."""
    return SpanClose(
        1, ABOVE, 2, T0 + 5 * 10**9, RUN, "root", "interrupted", 5 * 10**9, {"pid": 4242, **how}
    )


def test_what_a_supervisor_watches_waits_for_its_word(home: Home, store: SqliteStore) -> None:
    """Only `vestige run` saw how its child ended: every crash record uses what it wrote."""
    above = supervised(home)
    ingest_journals(home, store)
    too_early = stamp_dead(home, store)
    above.write(render_line(ending(signal="SIGKILL")))
    ingest_journals(home, store)
    in_time = stamp_dead(home, store)
    above.close()
    (stamp,) = stamps(store.load_run(RUN))

    assert (too_early, in_time) == (0, 1)
    assert stamp == "process exited unexpectedly after tool search (killed by SIGKILL)"


def test_a_child_whose_supervisor_is_dead_too_is_stamped_by_anyone(
    home: Home, store: SqliteStore
) -> None:
    """Nobody is left who could know more."""
    write(home, ABOVE).close()
    write(home, WRITER, *records(supervisor=ABOVE)).close()
    ingest_journals(home, store)

    assert stamp_dead(home, store) == 1


def test_the_time_of_the_end_is_the_parents_word(home: Home, store: SqliteStore) -> None:
    """A span in flight lasted until its process was seen dead."""
    supervised(home, ending(exit_code=3)).close()
    ingest_journals(home, store)
    stamp_dead(home, store)
    run = store.load_run(RUN)

    assert {span.duration_ns for span in run.spans} == {5 * 10**9}
    assert run.logs[0].attributes["exit_code"] == 3


def test_the_end_of_a_child_is_not_taken_for_that_of_a_grandchild(
    home: Home, store: SqliteStore
) -> None:
    """A supervisor sees its own child only: by the number of its process."""
    supervised(home, msgspec.structs.replace(ending(exit_code=3), attributes={"pid": 1})).close()
    ingest_journals(home, store)
    stamp_dead(home, store)
    (stamp,) = stamps(store.load_run(RUN))

    assert stamp == "process exited unexpectedly after tool search"


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit status 0"), (-11, "killed by SIGSEGV"), (-99, "killed by signal 99")],
)
def test_an_exit_is_told_in_words(code: int, text: str) -> None:
    """A signal by its name, where it has one."""
    assert str(Exit(code, 0)) == text


def test_a_program_that_exits_in_peace_but_leaves_a_span_open_is_told_so(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """No crash, but nothing will close that span any more."""
    done = run_program(
        """
        import vestige
        recorder = vestige.Recorder()
        with recorder.run("agent") as run:
            run.child("forgotten", type="tool")
        """
    )
    (run,) = [run for run in read_runs() if run.info.name == "agent"]

    assert done.returncode == 0
    assert stamps(run) == ["process exited and left tool forgotten open"]
    assert [log.attributes["crash"] for log in run.logs] == [False]
    assert {span.name: span.status for span in run.spans} == {
        "agent": "ok",
        "forgotten": "interrupted",
    }


def test_a_forked_child_that_is_killed_is_stamped_and_its_parent_is_not(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """A fork is a writer of its own: its death closes its own spans only."""
    done = run_program(
        """
        import os, signal
        import vestige
        recorder = vestige.Recorder()
        with recorder.run("agent") as run:
            child = os.fork()
            if child == 0:
                run.child("in the child", type="tool")
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            with run.child("in the parent", type="tool"):
                pass
        """
    )
    (run,) = [run for run in read_runs() if run.info.name == "agent"]
    statuses = {span.name: span.status for span in run.spans if span.type != "process"}

    assert done.returncode == 0
    assert statuses == {"agent": "ok", "in the child": "interrupted", "in the parent": "ok"}
    assert stamps(run) == ["process exited unexpectedly after tool in the child"]
    assert os.getpid() not in [span.attributes.get("pid") for span in run.spans]
