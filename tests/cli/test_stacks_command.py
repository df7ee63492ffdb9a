"""`vestige stacks`: a program that hangs says where, and goes on hanging."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from support.commands import vestige_process
from support.programs import load
from vestige.home import Home
from vestige.recorder import Recorder

HANGS = """
import sys, threading, vestige
recorder = vestige.Recorder()
recorder.secret("hush-hush-4711")
with recorder.run("agent") as run:
    with run.span("search", type="tool"):
        print("begun", flush=True)
        def look_up():
            threading.Event().wait()  # hush-hush-4711
        look_up()
"""

Process = subprocess.Popen[str]


def start(*command: str, **variables: str) -> Process:
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.fixture
def hanging(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    program = tmp_path_factory.mktemp("program") / "agent.py"
    program.write_text(HANGS)
    process = start(str(program))
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_it_tells_the_line_and_the_program_goes_on(home: Home, hanging: Process) -> None:
    done = vestige_process("stacks")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"pid {hanging.pid} at agent.py:9 in look_up")
    assert "Thread MainThread (most recent call last):" in done.stdout
    assert "threading.Event().wait()" in done.stdout
    assert hanging.poll() is None
    assert list(home.asks.iterdir()) == []


def test_the_answer_stays_in_the_run_in_the_span_that_hangs_and_masked(
    home: Home, hanging: Process
) -> None:
    answer = json.loads(vestige_process("stacks", "--json").stdout)

    (process,) = answer["processes"]
    assert process["pid"] == hanging.pid and process["threads"] == 1 and process["tasks"] == 0
    run = next(run for run in load(home) if run.info.short_id == answer["run"])
    (line,) = [log for log in run.logs if log.attributes.get("standing")]
    assert line.message == process["message"] and line.body is not None
    assert line.span_id == next(span.id for span in run.spans if span.type == "tool")
    assert "hush-hush-4711" not in process["stacks"] and "wait()  # " in process["stacks"]
    found = subprocess.run(["grep", "-r", "hush-hush-4711", str(home.root)], check=False)
    assert found.returncode == 1


def test_a_stopped_process_is_said_not_to_answer(home: Home, hanging: Process) -> None:
    os.kill(hanging.pid, signal.SIGSTOP)

    done = vestige_process("stacks", "--wait", "1")

    assert done.returncode == 1
    assert f"pid {hanging.pid} did not respond" in done.stdout
    assert list(home.asks.iterdir()) == []


@pytest.mark.parametrize("arguments", [["stacks"], ["stacks", "r9"], ["stacks", "r1"]])
def test_where_nothing_runs_that_is_said(home: Home, arguments: list[str]) -> None:
    with Recorder() as recorder, recorder.run("agent"):
        pass

    done = vestige_process(*arguments)

    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.startswith("vestige: ") and "`vestige " in done.stderr


def test_below_vestige_run_the_program_answers_and_not_the_supervisor(home: Home) -> None:
    process = start(
        "-m",
        "vestige",
        "run",
        "--",
        sys.executable,
        "-c",
        "print('begun', flush=True); import time; time.sleep(600)",
    )
    try:
        data = json.loads(vestige_process("stacks", "--json").stdout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    (answer,) = data["processes"]
    assert answer["pid"] != process.pid
    assert "<string>:1 in <module>" in answer["message"]


@pytest.mark.slow
def test_a_hang_is_written_down_by_itself_and_told_when_it_runs_and_when_it_was_killed(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("program") / "agent.py"
    program.write_text(HANGS)
    process = start(str(program), VESTIGE_SILENCE="1s")
    deadline = time.monotonic() + 30
    while "nothing was recorded for" not in (shown := vestige_process("show").stdout):
        assert time.monotonic() < deadline, shown

    runs = vestige_process("check")
    assert "standstill" in runs.stdout and "; at agent.py:9 in look_up" in runs.stdout
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    killed = vestige_process("check")
    assert "standstill" not in killed.stdout
    assert "[error] crash/" in killed.stdout
    assert "s; at agent.py:9 in look_up" in killed.stdout
