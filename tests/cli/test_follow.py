"""`vestige follow`: a run line by line while it happens, up to its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import load
from vestige._runtime.clock import FakeClock
from vestige.home import Home
from vestige.query.views.follow import Following
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

AGENT = """
import sys, vestige

def wait(): sys.stdin.readline()

with vestige.Recorder().run("agent") as run:
    with run.span("look", type="tool"):
        wait()
    run.log.info("half way")
    wait()
    with run.span("fail", type="step"):
        raise KeyError("no such page")
"""

Process = subprocess.Popen[str]


def start(*command: str) -> Process:
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def agent(home: Home) -> Iterator[Process]:
    process = start("-c", AGENT)
    yield process
    process.kill()
    process.communicate()


def go_on(agent: Process) -> None:
    assert agent.stdin is not None
    agent.stdin.write("\n")
    agent.stdin.flush()


def test_each_line_comes_when_it_happens_and_the_end_ends_it(home: Home, agent: Process) -> None:
    """The agent waits for us at each step: what is printed was there before the run's end."""
    following = start("-m", "vestige", "follow")
    assert following.stdout is not None
    lines = iter(following.stdout.readline, "")

    assert "run agent (open)" in next(lines)
    assert "tool look (open)" in next(lines)
    go_on(agent)
    assert "tool look " in next(lines)
    assert "info half way" in next(lines)
    go_on(agent)
    rest = list(lines)
    assert "step fail" in rest[-3] and "KeyError: 'no such page'" in rest[-3]
    assert "run agent " in rest[-2]
    assert rest[-1].startswith("r") and "agent: error after" in rest[-1]
    assert following.wait(60) == 0


def test_it_waits_for_the_next_run_and_stops_with_ctrl_c(home: Home, tmp_path: Path) -> None:
    following = start("-m", "vestige", "follow", "--home", str(tmp_path / "new"))
    assert following.stderr is not None

    assert "Waiting for the next" in following.stderr.readline()
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=60)
    assert (out, err, following.returncode) == ("", "", 130)


def follow(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vestige", "follow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_what_has_ended_is_shown_and_what_is_no_run_is_refused(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        run.span("look", type="tool").end()
        run.span("think", type="llm").end(status="error")
        run.log.info("done")

    tools = follow(run.run_id, "--type", "tool").stdout.splitlines()
    assert len(tools) == 2 and "tool look" in tools[0] and "agent: ok" in tools[1]
    assert "llm think" in follow(run.run_id, "--errors").stdout.splitlines()[0]
    assert follow("nope").returncode == 2
    refused = follow(str(home.root))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "a file does not change" in refused.stderr


def test_a_run_that_cannot_be_there_makes_no_home(tmp_path: Path) -> None:
    done = follow("r9", "--home", str(tmp_path / "none"))

    assert done.returncode == 2 and "no data directory" in done.stderr
    assert not (tmp_path / "none").exists()


def test_nothing_is_told_twice_and_all_of_it_in_its_order(home: Home) -> None:
    """By their numbers: of the two clocks by which a span's end is known, one may be set
    meanwhile.
    """
    clock = FakeClock(step_ns=10**9)
    clock.monotonic_ns = lambda: 0  # type: ignore[method-assign]
    with Recorder(home, crash_hooks=False, clock=clock) as recorder, recorder.run("agent") as run:
        run.log.info("same")
        run.log.info("same")
    load(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        loaded = store.load_run(run.run_id)
    following = Following()

    lines = [line.text for line in following.news(loaded)]
    assert lines == ["info same", "info same", "run agent → ok"]
    assert following.news(loaded) == []
