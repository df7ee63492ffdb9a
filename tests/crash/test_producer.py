"""Kill the program that records, in every way there is: what it had said is all there.

The programs are real processes and the signals are real. Each one opens five spans, writes
ten thousand inside them, and dies right after the last call returned.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from support.programs import ReadRuns, RunProgram
from vestige.home import Home
from vestige.query.views.show import stamps
from vestige.query.views.timeline import timeline
from vestige.record.run import Run
from vestige.store.sqlite.sqlite_store import SqliteStore

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

PROGRAM = """
import ctypes, os, resource, signal, sys
import vestige

recorder = vestige.Recorder()
span = recorder.run("agent")
for name in ("plan", "step", "chat", "search"):     # with the run itself: five in flight
    span = span.child(name, type="tool")
log = span.log
for number in range({spans}):
    log.span("work", type="step", attributes={{"n": number}}).end()

def die(how):
    if how == "SIGSEGV":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "memory":
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
        bytearray(2**30)
    else:
        os.kill(os.getpid(), getattr(signal, how))
        signal.pause()

die(sys.argv[1])
"""


def the_run(runs: list[Run], name: str = "agent") -> Run:
    (run,) = [run for run in runs if run.info.name == name and not run.info.implicit]
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "known"),
    [
        ("SIGKILL", 128 + signal.SIGKILL, "killed by SIGKILL"),
        ("SIGSEGV", 128 + signal.SIGSEGV, "killed by SIGSEGV"),
        ("SIGTERM", 128 + signal.SIGTERM, "killed by SIGTERM"),
        ("exit", 3, "exit status 3"),
    ],
)
def test_ten_thousand_spans_survive_and_the_stamp_says_how_it_ended(
    run_program: RunProgram, read_runs: ReadRuns, how: str, code: int, known: str
) -> None:
    """What `emit` returned from survives; what was in flight is interrupted; the parent who saw
    the end knows the signal or the exit status, and the stamp names the last open span."""
    done = run_program(PROGRAM.format(spans=10_000), how, command=VESTIGE_RUN)
    run = the_run(read_runs())
    spans = Counter((span.name, span.status) for span in run.spans)
    (stamp,) = [log for log in run.logs if "crash" in log.attributes]
    search = next(span for span in run.spans if span.name == "search")

    assert done.returncode == code
    assert run.info.outcome == "interrupted"
    assert spans == {
        ("work", "ok"): 10_000,
        ("agent", "interrupted"): 1,
        ("plan", "interrupted"): 1,
        ("step", "interrupted"): 1,
        ("chat", "interrupted"): 1,
        ("search", "interrupted"): 1,
    }
    assert [span.attributes["n"] for span in run.spans if span.name == "work"] == list(
        range(10_000)
    )
    assert stamps(run) == [f"process exited unexpectedly after tool search ({known})"]
    assert stamp.span_id == stamp.attributes["last_span"] == search.id
    assert stamp.attributes["open_spans"] == 5


def test_without_a_supervisor_the_next_reader_stamps(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """Nobody saw how it ended, so the stamp does not say; all else is the same."""
    done = run_program(PROGRAM.format(spans=100), "SIGKILL")
    run = the_run(read_runs())

    assert done.returncode == -signal.SIGKILL
    assert run.info.outcome == "interrupted"
    assert sum(span.name == "work" and span.status == "ok" for span in run.spans) == 100
    assert stamps(run) == ["process exited unexpectedly after tool search"]


def test_a_segmentation_fault_leaves_the_stacks(
    run_program: RunProgram, home: Home, read_runs: ReadRuns
) -> None:
    """faulthandler writes to the home, the stamp carries it, and the file is gone afterwards."""
    run_program(PROGRAM.format(spans=1), "SIGSEGV")
    run = the_run(read_runs())
    (stamp,) = [log for log in run.logs if "crash" in log.attributes]
    assert stamp.body is not None
    with SqliteStore.open(home.store, readonly=True) as store:
        text = store.read_body(stamp.body.id or 0).decode()

    assert stamp.attributes["fault"] == "Fatal Python error: Segmentation fault"
    assert "in die" in text
    assert list(home.faults.iterdir()) == []


def test_sigterm_leaves_the_stacks_in_the_span_that_was_open(
    home: Home, run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """What was open, and where each thread stood."""
    run_program(PROGRAM.format(spans=1), "SIGTERM", command=VESTIGE_RUN)
    stamps = [log for run in read_runs() for log in run.logs if "fault" in log.attributes]
    (stamp,) = [log for log in stamps if "tool search" in str(log.attributes["open_span_names"])]
    with SqliteStore.open(home.store, readonly=True) as store:
        assert stamp.body is not None
        text = store.read_body(stamp.body.id or 0).decode()

    assert stamp.attributes["fault"] == "terminated by SIGTERM"
    assert "in die" in text
    assert list(home.faults.iterdir()) == []


def test_running_out_of_memory_is_an_error_with_last_words(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """A MemoryError that nobody catches: there is still room to say so."""
    done = run_program(PROGRAM.format(spans=100), "memory", command=VESTIGE_RUN)
    runs = read_runs()
    words = [log for run in runs for log in run.logs if "last_words" in log.attributes]
    run = the_run(runs)

    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    assert [log.attributes["error.type"] for log in words] == ["MemoryError"]
    assert sum(span.name == "work" for span in run.spans) == 100
    assert run.info.outcome == "interrupted"


def test_an_exception_in_a_thread_is_told_and_the_program_goes_on(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """A thread dies, the process does not: its span failed, its last words are there, no stamp."""
    done = run_program(
        """
        import threading
        import vestige

        recorder = vestige.Recorder()
        with recorder.run("agent") as run:
            def work():
                with run.span("subagent", type="step"):
                    raise KeyError("the customer")
            thread = threading.Thread(target=work, name="sub-1")
            thread.start()
            thread.join()
            run.log.info("still here")
        """,
        command=VESTIGE_RUN,
    )
    runs = read_runs()
    run = the_run(runs)
    (words,) = [log for found in runs for log in found.logs if "last_words" in log.attributes]

    assert done.returncode == 0
    assert words.attributes["last_words"] == "uncaught exception in thread sub-1"
    assert words.attributes["error.type"] == "KeyError"
    assert {span.name: span.status for span in run.spans} == {"agent": "ok", "subagent": "error"}
    assert "still here" in [log.message for log in run.logs]
    assert [stamp for found in runs for stamp in stamps(found)] == []


def test_the_dead_run_reads_as_a_story(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """The easy view nests what was in flight, and ends with the stamp inside the last open span."""
    run_program(PROGRAM.format(spans=2), "SIGKILL", command=VESTIGE_RUN)
    lines = timeline(the_run(read_runs()), fold=False)

    assert [(line.depth, re.split(r" \S+ → ", line.text)[0]) for line in lines] == [
        (0, "run agent"),
        (1, "tool plan"),
        (2, "tool step"),
        (3, "tool chat"),
        (4, "tool search"),
        (5, "step work"),
        (5, "step work"),
        (5, "!! process exited unexpectedly after tool search (killed by SIGKILL)"),
    ]


@pytest.mark.slow
def test_eight_processes_write_into_one_home_and_none_is_torn(
    home: Home, read_runs: ReadRuns
) -> None:
    """Each process has a journal of its own: 40,000 records, all there, each in its order."""
    program = (
        "import sys, vestige\n"
        "log = vestige.Recorder().logger(sys.argv[1])\n"
        "for number in range(5000): log.info('said', n=number)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, f"agent-{number}"]) for number in range(8)
    ]
    codes = [child.wait(120) for child in children]
    messages: dict[str, list[object]] = {f"agent-{number}": [] for number in range(8)}
    for run in read_runs():
        for log in run.logs:
            messages[log.component].append(log.attributes["n"])
    with SqliteStore.open(home.store, readonly=True) as store:
        writers = store.writers()

    assert codes == [0] * 8
    assert all(numbers == list(range(5000)) for numbers in messages.values())
    assert [(writer.malformed, writer.missing, writer.ended) for writer in writers] == [
        (0, 0, "exited")
    ] * 8
