"""How runs of the AgentDbg face end, in processes of their own: Ctrl-C, sys.exit, fork, kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import RunProgram
from support.run_directories import only_rundir, read_rundirs
from vestige._runtime import file_locks
from vestige.formats.agentdbg.file_structs import EVENTS_FILE

HEAD = """
import asyncio, os, sys, threading
from vestige.agentdbg import *
"""


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        ("pass", "ok", None),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("sys.exit()", "ok", None),
        ("sys.exit(0)", "ok", None),
        ("sys.exit(3)", "error", "SystemExit"),
        ("raise asyncio.CancelledError", "error", "CancelledError"),
        ("raise TimeoutError('slow')", "error", "TimeoutError"),
        ("raise GeneratorExit", "ok", None),
        ("1 / 0", "error", "ZeroDivisionError"),
    ],
)
def test_every_way_out_of_a_block_ends_the_run(
    data_dir: Path, run_program: RunProgram, ending: str, status: str, error: str | None
) -> None:
    """The real one left `running` with zero counts for ever, unless it was an Exception."""
    run_program(f"{HEAD}\nwith traced_run('end'):\n    record_tool_call('t')\n    {ending}\n")

    run = only_rundir(data_dir)
    assert run.run["status"] == run.events[-1]["payload"]["status"] == status
    assert run.run["counts"] == {
        "llm_calls": 0,
        "tool_calls": 1,
        "errors": 1 if error else 0,
        "loop_warnings": 0,
    }
    assert run.run["ended_at"] and run.run["last_event_ts"] == run.events[-1]["ts"]
    assert [event["payload"]["error_type"] for event in run.of("ERROR")] == (
        [error] if error else []
    )


def test_a_run_left_open_at_exit_is_ended_as_interrupted(
    data_dir: Path, run_program: RunProgram
) -> None:
    """A daemon thread in the middle of its run, and a generator that nobody finished."""
    source = f"""{HEAD}
started = threading.Event()
def work():
    with traced_run("daemon"):
        record_state(1)
        started.set()
        threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
started.wait()
"""
    run_program(source)

    run = only_rundir(data_dir)
    assert run.run["status"] == "error"
    assert run.events[-2]["payload"]["error_type"] == "Interrupted"


@pytest.mark.parametrize("dies", [False, True])
def test_the_implicit_run_gathers_what_is_outside_any(
    data_dir: Path, run_program: RunProgram, dies: bool
) -> None:
    """One for the process, threads included, ended at exit; an uncaught error is its end too."""
    source = f"""{HEAD}
record_state(1)
threads = [threading.Thread(target=record_tool_call, args=("t",)) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(has_active_run())
with traced_run("explicit"):
    record_state(2)
{"1 / 0" if dies else ""}
"""
    done = run_program(source, env={"AGENTDBG_IMPLICIT_RUN": "1"})

    explicit, implicit = read_rundirs(data_dir)
    assert done.stdout == "False\n"
    assert (explicit.run["run_name"], implicit.run["run_name"]) == ("explicit", "implicit")
    assert implicit.run["counts"]["tool_calls"] == 2
    assert implicit.run["status"] == ("error" if dies else "ok")
    assert len(implicit.of("ERROR")) == (1 if dies else 0)


def test_a_forked_child_writes_into_the_run_and_does_not_end_it(
    data_dir: Path, run_program: RunProgram
) -> None:
    """Both write whole lines to one file; the counts at the end are of all of them."""
    source = f"""{HEAD}
with traced_run("fork"):
    record_tool_call("before")
    child = os.fork()
    for number in range(20):
        record_tool_call("child" if child == 0 else "parent", {{"n": number}})
    if child:
        os.waitpid(child, 0)
if child == 0:
    sys.exit()
"""
    done = run_program(source)

    run = only_rundir(data_dir)
    assert done.returncode == 0, done.stderr
    names = [event["name"] for event in run.of("TOOL_CALL")]
    assert (names.count("child"), names.count("parent")) == (20, 20)
    assert len({event["event_id"] for event in run.events}) == len(run.events)
    assert run.run["counts"]["tool_calls"] == 41
    assert run.types.count("RUN_END") == 1 and run.run["status"] == "ok"


def test_a_real_ctrl_c_ends_the_run(data_dir: Path, tmp_path: Path) -> None:
    # It sleeps until it is interrupted.
    child = start(tmp_path, "import time\n    print('ready', flush=True)\n    time.sleep(60)")
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.wait(120)

    run = only_rundir(data_dir)
    assert (run.run["status"], run.run["counts"]["tool_calls"]) == ("error", 100)
    assert run.of("ERROR")[0]["name"] == "KeyboardInterrupt"


def test_after_kill_9_every_event_is_there_and_the_run_is_known_to_be_dead(
    data_dir: Path, tmp_path: Path
) -> None:
    """What was recorded survives; the lock of events.jsonl shows whether the program lives."""
    child = start(tmp_path, "print('ready', flush=True)\n    sys.stdin.readline()")
    assert child.stdout is not None
    child.stdout.readline()
    (path,) = (data_dir / "runs").iterdir()
    held_alive = file_locks.is_held(path / EVENTS_FILE)
    child.kill()
    child.wait(120)

    run = only_rundir(data_dir)
    assert held_alive and not file_locks.is_held(path / EVENTS_FILE)
    assert run.types == ["RUN_START", *["TOOL_CALL"] * 100]
    assert run.run["status"] == "running" and run.run["ended_at"] is None


def start(folder: Path, ending: str) -> subprocess.Popen[str]:
    """A program in a run, with a hundred events behind it."""
    program = folder / "program.py"
    program.write_text(
        f"{HEAD}\nwith traced_run('x'):\n"
        f"    for n in range(100): record_tool_call('t', n)\n    {ending}\n"
    )
    return subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(os.environ),
    )


def test_many_threads_at_once_lose_nothing_and_tear_nothing(data_dir: Path) -> None:
    """Eight threads, long and short events: every line is whole, every event there."""
    import threading

    from vestige.agentdbg import record_tool_call, traced_run

    with traced_run("busy"):

        def work(name: str) -> None:
            for number in range(100):
                record_tool_call(name, {"n": number}, "x" * (number * 50))

        threads = [threading.Thread(target=work, args=(f"t{each}",)) for each in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run = only_rundir(data_dir)
    assert len(run.of("TOOL_CALL")) == 800 == run.run["counts"]["tool_calls"]
    for each in range(8):
        mine = [
            event["payload"]["args"]["n"] for event in run.events if event["name"] == f"t{each}"
        ]
        assert mine == list(range(100))
