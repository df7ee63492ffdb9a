"""What a dying process still says, and that it dies as it would have without us."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from support.programs import ReadRuns, RunProgram
from vestige.home import Home
from vestige.record.run import LogInfo, Run

UNCAUGHT = """
import vestige
if True:
    recorder = vestige.Recorder()
    with recorder.run("doomed") as run:
        span = run.child("search", type="tool")
        raise ValueError("bad luck")
"""

IN_THREAD = """
import threading, vestige
recorder = vestige.Recorder()
run = recorder.run("threaded")
def work():
    raise KeyError("in thread")
with run:
    thread = threading.Thread(target=work, name="worker-7")
    thread.start()
    thread.join()
    run.log.info("went on")
print("result")
"""

IN_TASK = """
import asyncio, gc, vestige
recorder = vestige.Recorder()
async def work():
    raise KeyError("nobody awaits this")
async def agent():
    with recorder.run("tasked") as run:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        del task
        gc.collect()
        run.log.info("went on")
asyncio.run(agent())
print("result")
"""

TERMINATED = """
import os, signal, vestige
recorder = vestige.Recorder()
with recorder.run("long") as run, run.child("wait", type="tool"):
    print("about to be terminated", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""

SEGFAULT = """
import ctypes, vestige
recorder = vestige.Recorder()
with recorder.run("native") as run, run.child("call", type="tool"):
    ctypes.string_at(0)
"""


def crash_logs(runs: list[Run]) -> list[LogInfo]:
    return [line for run in runs for line in run.logs if "last_words" in line.attributes]


def outcome_of(runs: list[Run], name: str) -> str:
    (found,) = [run.info.outcome for run in runs if run.info.name == name]
    return found


@pytest.mark.parametrize(
    ("source", "code"),
    [(UNCAUGHT, 1), (IN_THREAD, 0), (IN_TASK, 0), (TERMINATED, -15), (SEGFAULT, -11)],
    ids=["uncaught", "thread", "task", "sigterm", "sigsegv"],
)
def test_a_program_dies_as_it_would_without_us(
    run_program: RunProgram, source: str, code: int
) -> None:
    """Exit status, standard output and standard error are the same, line by line."""
    recorded = run_program(source)
    bare = run_program(source, env={"VESTIGE_DISABLED": "1"})

    assert recorded.returncode == bare.returncode == code
    assert recorded.stdout == bare.stdout
    assert without_addresses(recorded.stderr) == without_addresses(bare.stderr)


def without_addresses(text: str) -> str:
    """Frames of our own wrappers (a thread's start) are not the program's."""
    text = re.sub(r'  File "[^"]*/vestige/[^"]*", line .*\n(    .*\n)*', "", text)
    return re.sub(r"0x[0-9a-f]+|Thread-\d+|Task-\d+", "", text)


def test_an_uncaught_exception_is_told_with_open_spans_and_memory(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """The stack, what was open, and how large the process was."""
    run_program(UNCAUGHT)

    runs = read_runs()
    (log,) = crash_logs(runs)
    assert log.attributes["last_words"] == "uncaught exception"
    assert log.attributes["error.type"] == "ValueError"
    assert "bad luck" in str(log.attributes["error.stack"])
    assert "tool search" in str(log.attributes["open_span_names"])
    assert int(str(log.attributes["rss_bytes"])) > 1_000_000
    assert outcome_of(runs, "doomed") == "error"


def test_an_exception_in_a_thread_is_told_in_its_span(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """The process goes on, and is not said to have died."""
    run_program(IN_THREAD)

    runs = read_runs()
    (log,) = crash_logs(runs)
    (run,) = [run for run in runs if run.info.name == "threaded"]
    assert log in run.logs
    assert log.attributes["last_words"] == "uncaught exception in thread worker-7"
    assert [line.message for line in run.logs][-1] == "went on"
    assert {run.info.outcome for run in runs} == {"ok"}


def test_an_exception_in_a_task_that_nobody_awaits_is_told(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """asyncio only logs it, when the task is collected."""
    run_program(IN_TASK)

    (log,) = crash_logs(read_runs())
    assert log.attributes["last_words"] == "uncaught exception in asyncio"
    assert log.attributes["error.message"] == "'nobody awaits this'"


def test_a_terminated_program_leaves_its_stacks(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """SIGTERM runs no atexit and no finally: the stamp names the open spans."""
    run_program(TERMINATED)

    runs = read_runs()
    (run,) = [run for run in runs if run.info.name == "long"]
    (stamp,) = [line for line in run.logs if "crash" in line.attributes]
    assert stamp.attributes["fault"] == "terminated by SIGTERM"
    assert "run long > tool wait" in str(stamp.attributes["open_span_names"])
    assert stamp.body is not None
    assert run.info.outcome == "interrupted"


@pytest.mark.slow
def test_a_program_that_is_busy_in_c_is_terminated_at_once(run_program: RunProgram) -> None:
    """A handler in Python would wait for the main thread, and the program could not be stopped."""
    done = run_program(
        """
        import os, subprocess, vestige
        with vestige.Recorder().run("busy"):
            # From outside: no other Python code runs here during the sum, which takes minutes.
            subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -TERM {os.getpid()}"])
            sum(range(10**11))
        """
    )

    assert done.returncode == -signal.SIGTERM


def test_a_server_that_handles_sigterm_and_raises_it_again_is_told(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """It puts back the handler that it found: as uvicorn ends, and its workers."""
    done = run_program(
        """
        import os, signal, vestige
        recorder = vestige.Recorder()
        with recorder.run("serving"):
            found = signal.signal(signal.SIGTERM, lambda *_: print("graceful", flush=True))
            os.kill(os.getpid(), signal.SIGTERM)
            signal.signal(signal.SIGTERM, found)
            signal.raise_signal(signal.SIGTERM)
        """
    )

    (log,) = crash_logs(read_runs())
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "graceful\n"
    assert log.attributes["last_words"] == "terminated by SIGTERM"


def test_a_child_that_is_terminated_before_it_became_another_program_is_no_fault_of_ours(
    home: Home, run_program: RunProgram
) -> None:
    """Until then it has our file."""
    done = run_program(
        """
        import os, signal, subprocess, vestige
        with vestige.Recorder().run("r"):
            stop = lambda: os.kill(os.getpid(), signal.SIGTERM)
            print(subprocess.Popen(["true"], preexec_fn=stop).wait())
        """
    )

    assert done.stdout.split() == [str(-signal.SIGTERM)]
    assert list(home.faults.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_that_a_program_puts_on_top_stays_when_we_leave(
    run_program: RunProgram, when: str
) -> None:
    done = run_program(
        f"""
        import os, signal, sys, vestige
        mine = lambda *_: sys.exit(7)
        if {when == "before"}:
            signal.signal(signal.SIGTERM, mine)
        recorder = vestige.Recorder()
        signal.signal(signal.SIGTERM, mine)
        recorder.close()
        os.kill(os.getpid(), signal.SIGTERM)
        """
    )

    assert done.returncode == 7


def test_a_fatal_signal_leaves_its_stack(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """faulthandler writes to a file, which becomes part of the stamp."""
    run_program(SEGFAULT)

    runs = read_runs()
    (run,) = [run for run in runs if run.info.name == "native"]
    (stamp,) = [line for line in run.logs if "crash" in line.attributes]
    assert "after tool call" in stamp.message
    assert "Segmentation fault" in str(stamp.attributes["fault"])
    assert stamp.body is not None
    assert run.info.outcome == "interrupted"


def test_a_program_that_handles_sigterm_keeps_its_handler(run_program: RunProgram) -> None:
    """It has its own last words."""
    done = run_program(
        """
        import os, signal, sys, vestige
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        with vestige.Recorder().run("r"):
            os.kill(os.getpid(), signal.SIGTERM)
        """
    )

    assert done.returncode == 7


def test_hooks_that_were_there_run_and_come_back(run_program: RunProgram) -> None:
    """Before us, and after us."""
    done = run_program(
        """
        import faulthandler, signal, sys, threading, vestige
        mine = lambda *_: print("mine")
        sys.excepthook = threading.excepthook = mine
        recorder = vestige.Recorder()
        assert faulthandler.is_enabled()
        try:
            raise ValueError
        except ValueError:
            sys.excepthook(*sys.exc_info())
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start(); thread.join()
        recorder.close()
        print(sys.excepthook is mine, threading.excepthook is mine)
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, faulthandler.is_enabled())
        """
    )

    assert done.stdout.splitlines() == ["mine", "mine", "True True", "True False"]


def test_hooks_can_be_declined(run_program: RunProgram) -> None:
    """VESTIGE_LAST_WORDS=0 touches none of them."""
    done = run_program(
        """
        import faulthandler, signal, sys, vestige
        vestige.Recorder()
        print(sys.excepthook is sys.__excepthook__, faulthandler.is_enabled())
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """,
        env={"VESTIGE_LAST_WORDS": "0"},
    )

    assert done.stdout.splitlines() == ["True False", "True"]


def test_a_forked_child_has_a_fault_file_of_its_own(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """A child that goes must not take its parent's file along."""
    run_program(
        """
        import ctypes, os, vestige
        recorder = vestige.Recorder()
        with recorder.run("parent") as run:
            if os.fork() == 0:
                raise SystemExit
            os.wait()
            if os.fork() == 0:
                with run.child("in the child"):
                    ctypes.string_at(0)
            os.wait()
            ctypes.string_at(0)
        """
    )

    (run,) = [run for run in read_runs() if run.info.name == "parent"]
    stamps = [line for line in run.logs if "crash" in line.attributes]
    assert len(stamps) == 2
    assert all("Segmentation fault" in str(stamp.attributes["fault"]) for stamp in stamps)


def test_sigint_is_an_interrupted_program_s_own_business(run_program: RunProgram) -> None:
    """Ctrl-C: KeyboardInterrupt, and the same status as ever."""
    source = """
    import os, signal, vestige
    with vestige.Recorder().run("r"):
        os.kill(os.getpid(), signal.SIGINT)
    """
    bare = subprocess.run([sys.executable, "-c", "raise KeyboardInterrupt"], capture_output=True)

    done = run_program(source)

    assert done.returncode == bare.returncode == -signal.SIGINT


def test_every_thread_that_dies_is_told(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """One exception after the other, each made where the last one was freed."""
    run_program(
        """
        import threading, vestige
        def work():
            raise ValueError("in thread")
        with vestige.Recorder().run("many"):
            for number in range(5):
                thread = threading.Thread(target=work, name=f"worker-{number}")
                thread.start()
                thread.join()
        """
    )

    (run,) = [run for run in read_runs() if run.info.name == "many"]
    messages = [line.message for line in run.logs if "last_words" in line.attributes]
    assert len(messages) == 5
