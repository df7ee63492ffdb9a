"""Threads of ours inside the recorded program: they take none of its signals."""

from __future__ import annotations

import ast
import os
import signal
import sys
from _thread import allocate_lock
from pathlib import Path

import pytest

import vestige
from support.programs import RunProgram
from vestige._runtime.background_threads import start_thread

SOURCE = Path(vestige.__file__).parent
READERS = ("collector", "cli", "fleet", "mcp", "proxy", "query", "server", "store", "transfer")
"""Folders whose threads run in processes of our own, never in the recorded program."""
STARTS_THREADS = {
    "Thread",
    "Timer",
    "ThreadPoolExecutor",
    "start_new_thread",
    "start_joinable_thread",
}


def test_a_program_that_blocks_a_signal_and_waits_for_it_gets_it(run_program: RunProgram) -> None:
    """The documented way to wait for a signal; the recorder's thread is running meanwhile."""
    done = run_program(
        """
        import os, signal, time, vestige
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        with vestige.Recorder().run("agent") as run:
            run.log.info("a record starts the journal's thread")
            for number in (signal.SIGTERM, signal.SIGUSR1):
                os.kill(os.getpid(), number)
                time.sleep(0.2)
                print(signal.sigwait({number}).name)
        """
    )

    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.split() == ["SIGTERM", "SIGUSR1"]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_every_thread_of_a_recorder_blocks_all_signals(run_program: RunProgram) -> None:
    """Also with a collector beside it, and the program's own mask stays as it was."""
    done = run_program(
        """
        import os, signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        import vestige
        from pathlib import Path
        recorder = vestige.Recorder(collect=True)
        with recorder.run("agent") as run:
            run.log.info("a record starts the journal's thread")
            for task in Path("/proc/self/task").iterdir():
                if int(task.name) != os.getpid():
                    status = (task / "status").read_text()
                    mask = int(status.partition("SigBlk:")[2].split()[0], 16)
                    print(all(mask >> number - 1 & 1 for number in signal.valid_signals()
                              if number not in (signal.SIGKILL, signal.SIGSTOP)))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before)
        """
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]


def test_a_handler_that_raises_while_a_thread_starts_leaves_the_mask_as_it_was() -> None:
    """A signal that arrives meanwhile is delivered, and its exception reaches the program."""

    class StopError(Exception):
        pass

    armed = False

    def stop(number: int, frame: object) -> None:
        if armed:
            raise StopError

    stopped = 0
    before = signal.signal(signal.SIGALRM, stop)
    # Libraries that other tests load in this process may have blocked signals, too.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}) | {signal.SIGUSR2}
    try:
        for attempt in range(400):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + attempt % 100))
                start_thread(lambda: None)
                for _ in range(10):
                    pass  # The handler of a signal that has just arrived runs here.
                armed = False
            except StopError:
                armed = False
                stopped += 1
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGALRM, before)
    assert stopped
    ran = allocate_lock()
    ran.acquire()
    start_thread(ran.release)
    assert ran.acquire(timeout=60)


@pytest.mark.slow
def test_no_other_code_in_the_recorded_process_starts_a_thread() -> None:
    """Other threads would receive signals: `start_thread` is the only way."""
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(READERS) or name == "_runtime/background_threads.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in STARTS_THREADS:
                    found.append(f"{name}:{node.lineno}: {called}")

    assert found == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older versions do not warn")
def test_a_fork_of_a_recorded_program_is_not_warned_of(run_program: RunProgram) -> None:
    """Python counts the threads of the system: ours has ended before the fork."""
    done = run_program(
        """
        import os, warnings, vestige
        warnings.simplefilter("error", DeprecationWarning)
        with vestige.Recorder().run("agent") as run:
            for number in range(20):
                run.log.info("before", n=number)
                pid = os.fork()
                if pid == 0:
                    run.log.info("child")
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
        """
    )

    assert (done.returncode, done.stderr) == (0, "")
