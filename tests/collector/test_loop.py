"""One process at a time takes journals in; readers wait for it, and a daemon stops cleanly."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.programs import WAIT_S, RunProgram, load
from vestige._runtime.clock import SYSTEM
from vestige.collector.loop import catch_up, hold
from vestige.collector_process import CollectorProcess
from vestige.errors import StoreError
from vestige.home import Home
from vestige.limits import TICK_S
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

LOOKS_MAX = 2400
COLLECT = (sys.executable, "-m", "vestige", "collect")


def wait_until(true: Callable[[], bool]) -> None:
    """Look again and again, a bounded number of times."""
    for _ in range(LOOKS_MAX):
        if true():
            return
        time.sleep(0.05)  # another process does it: looking is the only way
    raise AssertionError("it never came true")


def stored(home: Home) -> dict[str, int]:
    """What is in the store now, without taking anything in."""
    try:
        with SqliteStore.open(home.store, readonly=True) as store:
            return {run.name: run.log_count for run in store.list_runs(RunFilter())}
    except StoreError:
        return {}  # not there yet, or being made


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def collector_of(parent: int) -> psutil.Process:
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = [
            child for child in psutil.Process(parent).children() if "--until-eof" in child.cmdline()
        ]
        return bool(found)

    wait_until(look)
    return found[0]


def test_only_one_process_holds_a_home(home: Home) -> None:
    """The second gets None, whichever process it is in, and the lock is free afterwards."""
    with hold(home) as first, hold(home) as second:
        opened = (first is not None, second is not None)
    with hold(home) as third:
        again = third is not None

    assert opened == (True, False)
    assert again


def test_a_reader_waits_for_the_collector_that_is_at_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lock taken, catch_up returns once the holder has reached the present."""
    monkeypatch.setattr("vestige.collector.loop.CATCH_UP_WAIT_S", WAIT_S)
    with Recorder(home) as recorder, recorder.run("agent") as run:
        for number in range(20):
            run.log.info("said", n=number)
    daemon = subprocess.Popen([*COLLECT], stderr=subprocess.PIPE, text=True)
    assert daemon.stderr is not None
    daemon.stderr.readline()  # it has the lock now
    try:
        catch_up(home)
        found = stored(home)
    finally:
        daemon.terminate()
        daemon.communicate(timeout=120)

    assert found == {"agent": 20}


def test_a_reader_does_not_wait_for_ever(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that does nothing costs a bounded wait; the answer is what the store has."""
    monkeypatch.setattr("vestige.collector.loop.CATCH_UP_WAIT_S", 0.1)
    with Recorder(home) as recorder:
        recorder.run("agent").end()
        with hold(home):
            catch_up(home)

        assert stored(home) == {}


def test_a_second_collect_says_that_somebody_is_at_it(home: Home) -> None:
    """Exit 1 and one line."""
    with hold(home):
        done = subprocess.run([*COLLECT, "--once"], capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "another process is collecting already" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_collect_stops_on_a_signal_with_the_rest_taken_in(
    home: Home, number: signal.Signals
) -> None:
    """What was written before the signal is in the store after it, without any reader."""
    daemon = subprocess.Popen([*COLLECT], stderr=subprocess.PIPE, text=True)
    assert daemon.stderr is not None
    daemon.stderr.readline()
    with Recorder(home) as recorder, recorder.run("agent") as run:
        for number_said in range(500):
            run.log.info("said", n=number_said)
    daemon.send_signal(number)
    daemon.communicate(timeout=120)

    assert daemon.returncode == 0
    assert stored(home) == {"agent": 500}
    assert home.journal_files() == []


def test_a_recorder_with_a_collector_fills_the_store_by_itself(
    run_program: RunProgram, home: Home
) -> None:
    """Spawned first, drained last: at exit the store has everything, and no process is left."""
    done = run_program(
        """
        import vestige
        from vestige.collector_process import CollectorProcess
        CollectorProcess.drain.__defaults__ = (120,)  # a slow machine gets the time that it needs
        recorder = vestige.Recorder(collect=True)
        with recorder.run("agent") as run:
            for number in range(300):
                run.log.info("said", n=number)
        print(recorder._collector.pid)
        recorder.close()
        """
    )

    assert done.returncode == 0, done.stderr
    assert stored(home) == {"agent": 300}
    assert not is_running(int(done.stdout))


@pytest.mark.slow
def test_a_collector_that_is_started_again_while_the_program_closes_goes_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drain` saw the dead one only: the new one is asked to end by who started it."""
    home.make()
    companion = CollectorProcess(home)
    start, again = companion._start, threading.Event()
    started: list[subprocess.Popen[bytes] | None] = []

    def start_late() -> subprocess.Popen[bytes] | None:
        companion.drain()
        started.append(start())
        again.set()
        return started[0]

    monkeypatch.setattr(companion, "_start", start_late)
    assert companion.pid is not None
    os.kill(companion.pid, signal.SIGKILL)
    while not again.wait(0.05):
        companion.check()
    (second,) = started
    assert second is not None
    try:
        code = second.wait(WAIT_S)
    finally:
        second.kill()

    assert code == 0


SERVICE = """
import signal, sys
import vestige
from vestige.collector_process import CollectorProcess
CollectorProcess.drain.__defaults__ = (120,)
recorder = vestige.Recorder(collect=True)
run = recorder.run("agent")
print("up", flush=True)
for line in sys.stdin:
    run.log.info(line.strip())
run.end()
recorder.close()
"""


@pytest.mark.slow
def test_a_collector_that_is_killed_is_started_again_and_resumes(
    home: Home, tmp_path: Path
) -> None:
    """The program does not notice; what was said before, between and after is stored once."""
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdin is not None
    assert service.stdout is not None
    service.stdout.readline()
    first = collector_of(service.pid)
    service.stdin.write("before\n")
    service.stdin.flush()
    wait_until(lambda: stored(home).get("agent") == 1)
    first.kill()
    service.stdin.write("between\n")
    service.stdin.flush()
    wait_until(lambda: stored(home).get("agent") == 2)
    second = collector_of(service.pid)
    service.communicate("after\n", timeout=120)

    assert second.pid != first.pid
    assert service.returncode == 0
    assert stored(home) == {"agent": 3}
    wait_until(lambda: not is_running(second.pid))


@pytest.mark.slow
def test_the_collector_of_a_killed_program_takes_in_the_rest_and_goes(home: Home) -> None:
    """The pipe closes with the parent, however it died; the run is stamped, and nothing remains."""
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdin is not None
    assert service.stdout is not None
    service.stdout.readline()
    collector = collector_of(service.pid)
    wait_until(lambda: "agent" in stored(home))  # it is past its start, and at work
    service.kill()
    service.communicate(timeout=120)
    wait_until(lambda: not is_running(collector.pid))
    with SqliteStore.open(home.store, readonly=True) as store:
        outcomes = {run.name: run.outcome for run in store.list_runs(RunFilter())}

    assert outcomes == {"agent": "interrupted"}
    assert home.journal_files() == []


def test_catching_up_twice_changes_nothing(home: Home) -> None:
    """Every reading command does it, so it must be free of consequence."""
    with Recorder(home) as recorder, recorder.run("agent") as run:
        run.log.info("said")

    first, second = load(home), load(home)

    assert first == second
    assert os.listdir(home.journal) == []


def test_a_daemon_goes_on_after_a_tick_that_failed(home: Home) -> None:
    """A store that is locked for too long is reported once, and ingest resumes by itself."""
    home.make()
    reports: list[str] = []
    ticks = iter([True, True, True, False])
    with hold(home) as collector:
        assert collector is not None
        collector.store._connection.execute("PRAGMA busy_timeout = 1")
        with Recorder(home, crash_hooks=False) as recorder:
            recorder.run("while locked").end()
            blocker = sqlite3.connect(home.store, isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")

        def keep_on(seconds: float) -> bool:
            if len(reports) and blocker.in_transaction and seconds > TICK_S:
                blocker.execute("ROLLBACK")
            return next(ticks)

        collector.run(keep_on, reports.append)

    assert len(reports) == 1 and "will go on" in reports[0]
    assert "while locked" in stored(home)


def test_a_collector_whose_store_is_gone_ends_and_leaves_the_journals(home: Home) -> None:
    """What it would take in nobody could find; the next one makes a store, and finds all of it."""
    with hold(home) as collector:
        assert collector is not None
        collector.tick()
        for path in home.root.glob("store.db*"):
            path.unlink()
        with Recorder(home, crash_hooks=False) as recorder:
            recorder.run("after").end()

        turns = iter((True, True))
        with pytest.raises(StoreError, match="deleted or replaced"):
            collector.run(lambda seconds: next(turns, False), lambda text: None)

    catch_up(home)
    assert "after" in stored(home)


def test_a_reading_command_applies_retention_once_in_a_while(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a collector that lives for long, old runs would stay for ever."""
    day_ns = 24 * 3600 * 10**9
    now_ns = SYSTEM.now_ns()
    with Recorder(home) as recorder, recorder.run("old"):
        pass

    def names(at_ns: int) -> list[str]:
        monkeypatch.setattr(SYSTEM, "now_ns", lambda: at_ns)
        assert catch_up(home) is None
        with SqliteStore.open(home.store, readonly=True) as store:
            return [run.name for run in store.list_runs(RunFilter())]

    assert names(now_ns) == ["old"]
    assert names(now_ns + 3 * day_ns) == ["old"]
    assert names(now_ns + 1000 * day_ns) == []


def test_a_retention_pass_is_bounded_and_continued(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.collector.loop.PRUNE_RUNS_MAX", 2)
    with Recorder(home) as recorder:
        for number in range(5):
            recorder.run(f"old {number}").end()
    now_ns = SYSTEM.now_ns()
    left = []
    with hold(home) as collector:
        assert collector is not None
        collector.tick()
        monkeypatch.setattr(SYSTEM, "now_ns", lambda: now_ns + 10**18)
        for _ in range(4):
            collector.tick()
            left.append(len(collector.store.list_runs(RunFilter(with_implicit=True))))

    assert left == [4, 2, 0, 0]
