"""Long-lived descriptors in a program that closes descriptors in bulk, as daemons do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.programs import ReadRuns, RunProgram
from vestige._runtime.long_lived_files import OPEN_FLAGS, LostError, OwnFile

CLOSES_ALL = """
import os, resource, sys, time
os.chdir(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # every number is soon used again
{opening}
os.closerange(3, 4096)
theirs = []
kinds = (os.O_RDWR, os.O_WRONLY | os.O_APPEND)
while True:
    try:
        theirs.append(os.open(f"theirs-{{len(theirs)}}", kinds[len(theirs) % 2] | os.O_CREAT))
    except OSError:
        break  # the limit: the program has every number that there is, ours included
room, theirs[20:28] = theirs[20:28], []
for fd in room:
    os.close(fd)  # so that the recorder can open its files again
{recording}
for fd in theirs:
    os.write(fd, b"theirs")  # fails if other code has closed it
assert {{os.fstat(fd).st_size for fd in theirs}} == {{6}}
print("done", len(theirs))
"""


@pytest.mark.parametrize("options", ["", "collect=True"])
def test_records_never_reach_a_file_that_has_got_our_number(
    run_program: RunProgram, read_runs: ReadRuns, tmp_path: Path, options: str
) -> None:
    """Nor is one of the program's files closed; and no record is lost."""
    opening = f"""
import vestige
recorder = vestige.Recorder({options})
run = recorder.run("agent")
run.log.info("before")
"""
    recording = """
for number in range(50):
    run.log.info("after", n=number)
time.sleep(1.3)  # the journal's thread looks at its descriptors
run.log.info("later")
run.end()
recorder.close()
"""
    done = run_program(CLOSES_ALL.format(opening=opening, recording=recording), str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done")
    (run,) = (run for run in read_runs() if run.info.name == "agent")
    assert [log.message for log in run.logs] == ["before", *["after"] * 50, "later"]


def test_agentdbg_events_never_reach_a_file_that_has_got_our_number(
    run_program: RunProgram, data_dir: Path, tmp_path: Path
) -> None:
    opening = """
from vestige import agentdbg
tracing = agentdbg.traced_run(name="agent")
tracing.__enter__()
agentdbg.record_tool_call("before", args={}, result="x")
"""
    recording = """
for number in range(20):
    agentdbg.record_tool_call("after", args={"n": number}, result="x")
tracing.__exit__(None, None, None)
"""
    done = run_program(CLOSES_ALL.format(opening=opening, recording=recording), str(tmp_path))

    assert done.returncode == 0, done.stderr
    (events,) = data_dir.glob("runs/*/events.jsonl")
    assert events.read_text().count('"tool_name":"after"') == 20


def test_a_trace_of_a_suite_never_reaches_a_file_that_has_got_our_number(
    run_program: RunProgram, tmp_path: Path
) -> None:
    opening = """
from pathlib import Path
from vestige.artifacts.suite_trace_writer import TraceWriter
from vestige._runtime.clock import SYSTEM
trace = TraceWriter(Path("events.jsonl"), "shop", "20260210_170000", SYSTEM)
"""
    recording = """
for number in range(20):
    trace.event("log", case=f"case {number}")
assert trace.lost == 0, trace.why_lost
trace.close()
"""
    done = run_program(CLOSES_ALL.format(opening=opening, recording=recording), str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "events.jsonl").read_text().count('"case ') == 20


def test_the_stacks_of_a_terminated_program_do_not_reach_its_own_file(
    run_program: RunProgram, tmp_path: Path
) -> None:
    """faulthandler writes to a number, which is updated with the next record."""
    opening = """
import signal, vestige
recorder = vestige.Recorder()
run = recorder.run("agent")
run.log.info("before")
"""
    recording = """
run.log.info("after")
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = run_program(CLOSES_ALL.format(opening=opening, recording=recording), str(tmp_path))

    assert done.returncode == -15, done.stderr
    assert {path.stat().st_size for path in tmp_path.glob("theirs-*")} == {0}


def test_another_file_with_the_same_inode_number_is_not_ours(tmp_path: Path) -> None:
    """The next file may get the inode of a deleted one: only the mark differs."""
    path = tmp_path / "ours"
    own = OwnFile(os.open(path, OPEN_FLAGS))
    with path.open("ab") as file:  # the same file, opened by other code
        os.dup2(file.fileno(), own.fd)
        with pytest.raises(LostError):
            own.append(b"x")
        number = own.fd
        own.close()
        os.write(number, b"theirs")
        os.close(number)

    assert path.read_bytes() == b"theirs"


def test_appending_moves_no_mark_and_keeps_the_order(tmp_path: Path) -> None:
    own = OwnFile(os.open(tmp_path / "ours", OPEN_FLAGS))

    written = [own.append(b"%d\n" % number) for number in range(10)]

    assert own.is_ours()
    own.close()
    assert written == [2] * 10
    assert (tmp_path / "ours").read_bytes() == b"".join(b"%d\n" % number for number in range(10))


def test_a_file_that_cannot_be_marked_is_known_by_its_inode(tmp_path: Path) -> None:
    """Pipes have no position."""
    reading, writing = os.pipe()
    own = OwnFile(writing)
    own.append(b"to the pipe")
    with (tmp_path / "theirs").open("wb") as file:
        os.dup2(file.fileno(), own.fd)
    number = own.fd
    with pytest.raises(LostError):
        own.append(b"to their file")
    own.close()

    os.close(number)  # it is still open
    assert os.read(reading, 99) == b"to the pipe"
    os.close(reading)
