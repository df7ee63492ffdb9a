"""Records that are lost are reported on the run that lost them, and a loss is not a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.programs import ReadRuns, RunProgram, SmallDisk
from vestige.collector.loop import hold
from vestige.home import Home, explain_missing
from vestige.query.debugger import Debugger
from vestige.record.run import Run
from vestige.store.protocol import RetentionPolicy, RunFilter

FULL_UNTIL_THE_END = """
import sys, vestige
recorder = vestige.Recorder()
with recorder.run("full") as run:
    for number in range(2000):
        with run.span("step", body="x" * 3000) as span:
            span.log.info("line")
"""

FULL_FOR_A_WHILE = """
import os, sys, vestige
recorder = vestige.Recorder()
home = os.environ["VESTIGE_HOME"]
with recorder.run("other"):
    pass
with recorder.run("refill") as run:
    with open(home + "/filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    for number in range(3000):
        run.log.info("y" * 500, n=number)
    os.unlink(home + "/filler")
    recorder._writer.journal.check()
    run.log.info("after")
"""

HOME_DELETED = """
import os, shutil, vestige
recorder = vestige.Recorder()
with recorder.run("gone", conversation_id="c-1", attributes={"user": "u1"}) as run:
    span = run.span("outer", type="tool")
    for number in range(50):
        run.log.info("before", n=number)
    shutil.rmtree(os.environ["VESTIGE_HOME"])
    for number in range(50):
        run.log.info("hole", n=number)
    recorder._writer.journal.check()
    for number in range(50):
        run.log.info("after", n=number)
    span.end()
"""


@pytest.fixture
def full_home(small_disk: SmallDisk, home: Home) -> Home:
    """A home on a disk of 2 MB, with its store elsewhere, so that the disk is the journal's."""
    disk = small_disk("2m")
    home.make()
    home.journal.rmdir()
    (disk / "journal").mkdir()
    os.symlink(disk / "journal", home.journal)
    return home


def test_a_disk_that_is_full_until_a_clean_end_is_not_a_crash(
    full_home: Home, run_program: RunProgram, read_runs: ReadRuns
) -> None:
    done = run_program(FULL_UNTIL_THE_END)

    assert done.returncode == 0, done.stderr
    run = find(read_runs(), "full")
    assert run.info.outcome == "ok"
    assert 2000 < run.info.missing_count < 6000
    with hold(full_home) as collector:
        assert collector is not None
        (writer,) = collector.store.writers()
        report = Debugger(collector.store).check(run.info.id).report
    assert writer.ended == "exited"
    assert writer.missing == writer.dropped == run.info.missing_count
    (finding,) = [found for found in report.findings if found.kind == "health/gap"]
    assert f"{run.info.missing_count} records are missing" in finding.message
    assert not [found for found in report.findings if found.kind.startswith("crash")]


def test_a_full_disk_is_reported_on_the_run_that_lost_records(
    small_disk: SmallDisk, run_program: RunProgram
) -> None:
    home = Home(small_disk("4m") / "home")
    home.make()
    done = run_program(FULL_FOR_A_WHILE, env={"VESTIGE_HOME": str(home.root)})

    assert done.returncode == 0, done.stderr
    with hold(home) as collector:
        assert collector is not None
        collector.tick()
        debugger = Debugger(collector.store)
        runs = {run.name: run for run in collector.store.list_runs(RunFilter())}
        listed = debugger.list()
        data = listed.data()["runs"]
        shown = "\n".join(listed.lines(4000))
        overview = "\n".join(debugger.overview(runs["refill"].id).lines(4000))
    missing = runs["refill"].missing_count
    assert missing > 500
    assert runs["other"].missing_count == 0
    assert {run["name"]: run["missing_count"] for run in data} == {"refill": missing, "other": 0}
    assert f"refill ({missing} records missing)" in shown
    assert f"{missing} records missing" in overview or f"{missing} records are missing" in overview


def test_a_home_that_is_deleted_leaves_a_finished_run_that_says_what_is_missing(
    run_program: RunProgram, home: Home, read_runs: ReadRuns
) -> None:
    done = run_program(HOME_DELETED)

    assert done.returncode == 0, done.stderr
    run = find(read_runs(), "gone")
    assert (run.info.outcome, run.info.conversation_id) == ("ok", "c-1")
    assert run.info.missing_count >= 100
    root = next(span for span in run.spans if span.parent_id is None)
    assert root.attributes == {"user": "u1"}
    assert [span.status for span in run.spans] == ["ok", "ok"]
    assert sum(log.message == "after" for log in run.logs) == 50
    with hold(home) as collector:
        assert collector is not None
        pruned = collector.store.prune(RetentionPolicy(0, None), run.info.last_ns + 10**9)
    assert pruned.runs == 2


def test_a_run_without_a_beginning_ends_with_its_processes(
    run_program: RunProgram, home: Home, read_runs: ReadRuns, tmp_path: Path
) -> None:
    """An older version did not open it again, and nothing but its process can end it."""
    run_program("import vestige\nwith vestige.Recorder().run('r') as run:\n    run.log.info('x')\n")
    (journal,) = (path for _, _, path in home.journal_files())
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"type":"run"' not in line))

    runs = read_runs()

    assert {run.info.outcome for run in runs} == {"interrupted"}
    assert all(run.info.ended_ns is not None for run in runs)


def find(runs: list[Run], name: str) -> Run:
    (run,) = (run for run in runs if run.info.name == name)
    return run


def test_a_home_that_cannot_be_created_is_reported_as_such(tmp_path: Path) -> None:
    """Recording something first would not help."""
    (tmp_path / "file").touch()
    in_file = explain_missing(Home(tmp_path / "file" / "home"))
    in_proc = explain_missing(Home(Path("/proc/nope")))
    possible = explain_missing(Home(tmp_path / "home"))

    assert f"{tmp_path / 'file'} is not a directory" in in_file
    assert "/proc is not writable" in in_proc
    assert "Record a run first" in possible
    assert "Record a run first" not in in_file + in_proc
