"""Beside the real package, agentdbg 0.3.0: one program with either import, and its own tools on
ours.

The program uses every name that the package exports. With only the import changed, no run may be
worse: no event lost, the right status, usage intact, no secret in clear.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.programs import WAIT_S, free_port, load
from support.run_directories import RunDir, read_rundirs
from vestige._runtime.clock import monotonic, sleep
from vestige.home import Home

pytestmark = pytest.mark.slow

SECRET = "correct-horse-battery"
PROGRAM = """
import asyncio, os, signal, sys, threading
from MODULE import (
    AgentDbgGuardrailExceeded, AgentDbgLoopAbort, has_active_run, record_llm_call, record_state,
    record_tool_call, trace, traced_run,
)

SECRET = "correct-horse-battery"
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}

def events(where):
    record_llm_call("gpt-4", prompt=f"{where}?", response={"text": where}, usage=USAGE,
                    meta={"where": where}, provider="openai", temperature=0.5, stop_reason="stop")
    record_tool_call("search", {"q": where, "password": SECRET}, [where], meta={"n": 1})
    record_state({"where": where, "nan": float("nan")}, diff={"where": [None, where]})

@trace("sync")
def sync(): events("sync")

@trace("async")
async def asynchronous():
    async def part(number):
        await asyncio.sleep(0)
        record_tool_call(f"part {number}", {"n": number})
    events("async")
    await asyncio.gather(*(part(number) for number in range(3)))

@trace("threads")
def threads():
    each = [threading.Thread(target=events, args=(f"thread {number}",)) for number in range(3)]
    [thread.start() for thread in each]
    [thread.join() for thread in each]

@trace("inner")
def inner():
    assert has_active_run()
    events("inner")

@trace("nested")
def nested():
    events("before")
    inner()
    with traced_run("block"):
        events("block")

@trace("generator")
def generator():
    for number in range(3):
        record_tool_call("next", {"n": number})
        yield number

@trace("error")
def error():
    events("error")
    record_tool_call("bad", status="error", error=ValueError("refused"))
    raise ValueError(f"password={SECRET}")

@trace("loop")
def loop():
    for _ in range(4):
        record_tool_call("again", {"q": 1})

@trace("guardrail", max_tool_calls=2)
def guardrail():
    for number in range(5):
        try:
            record_tool_call(f"t{number}")
        except Exception:
            pass

@trace("abort", stop_on_loop=True)
def abort():
    for _ in range(9):
        record_tool_call("again", {"q": 1})

@trace("ctrl-c")
def interrupted():
    events("ctrl-c")
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(10)

@trace("exit")
def leaves():
    events("exit")
    sys.exit(3)

@trace("killed")
def killed():
    events("killed")
    os.kill(os.getpid(), signal.SIGKILL)

assert not has_active_run()
for each in (sync, threads, nested, loop):
    each()
asyncio.run(asynchronous())
assert list(generator()) == [0, 1, 2]
for each, expected in ((error, ValueError), (abort, AgentDbgLoopAbort), (leaves, SystemExit),
                       (interrupted, KeyboardInterrupt), (guardrail, AgentDbgGuardrailExceeded)):
    try:
        each()
    except expected:
        pass
killed()
"""

STATUS = {
    "abort": "error",
    "async": "ok",
    "ctrl-c": "error",
    "error": "error",
    "exit": "error",
    "generator": "ok",
    "guardrail": "error",
    "killed": "running",
    "loop": "ok",
    "nested": "ok",
    "sync": "ok",
    "threads": "ok",
}


@dataclass(frozen=True)
class Both:
    real: dict[str, RunDir]
    ours: dict[str, RunDir]
    ours_dir: Path
    home: Home


@pytest.fixture(scope="module")
def both(agentdbg: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The program's runs, by either package."""
    folder = tmp_path_factory.mktemp("both")
    home = Home(folder / "home")
    for module, python in (("agentdbg", agentdbg), ("vestige.agentdbg", Path(sys.executable))):
        program = folder / f"program_{module.partition('.')[0]}.py"
        program.write_text(PROGRAM.replace("MODULE", module))
        done = subprocess.run(
            [str(python), program.name, "--token", SECRET],
            cwd=folder,
            env=environment(folder / module, home, ours=module != "agentdbg"),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    return Both(
        {run.run["run_name"]: run for run in _lenient(folder / "agentdbg")},
        {run.run["run_name"]: run for run in read_rundirs(folder / "vestige.agentdbg")},
        folder / "vestige.agentdbg",
        home,
    )


def environment(data_dir: Path, home: Home, *, ours: bool) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if ours or name != "PYTHONPATH"}
    return {
        **variables,
        "AGENTDBG_DATA_DIR": str(data_dir),
        "VESTIGE_HOME": str(home.root),
        "HOME": str(home.root.parent / "user"),
        "PYTHONWARNINGS": "ignore",
    }


def _lenient(data_dir: Path) -> list[RunDir]:
    """The real package writes NaN, which is not JSON: read it as Python does."""
    found = []
    for path in (data_dir / "runs").iterdir():
        lines = (path / "events.jsonl").read_text().splitlines()
        run = json.loads((path / "run.json").read_text())
        found.append(RunDir(path, run, [json.loads(line) for line in lines]))
    return found


def test_every_run_is_there_with_the_right_status(both: Both) -> None:
    """Of the real ones, three are left running and one hides that its guardrail tripped."""
    assert {name: run.run["status"] for name, run in both.ours.items()} == STATUS
    assert set(both.real) == set(STATUS)


@pytest.mark.parametrize("name", sorted(STATUS))
def test_no_event_of_the_real_ones_is_missing(both: Both, name: str) -> None:
    """Same calls in the same order; more where the real one loses them (threads, generators)."""

    def calls(run: RunDir) -> list[tuple[str, str, Any]]:
        kinds = ("LLM_CALL", "TOOL_CALL", "STATE_UPDATE")
        return [
            (event["event_type"], event["name"], event["meta"].get("where"))
            for event in run.events
            if event["event_type"] in kinds
        ]

    theirs, ours = calls(both.real[name]), calls(both.ours[name])
    if name == "guardrail":
        assert (len(theirs), len(ours)) == (5, 3)  # theirs was swallowed; ours stopped the program
        theirs = theirs[:3]
    rest = iter(ours)
    assert all(call in rest for call in theirs)
    assert len(ours) >= len(theirs)
    if name == "threads":
        assert (len(theirs), len(ours)) == (0, 9)
    if name == "generator":
        assert (len(theirs), len(ours)) == (0, 3)


@pytest.mark.parametrize("name", sorted(STATUS))
def test_payloads_are_those_of_the_real_ones_or_better(both: Both, name: str) -> None:
    """Field by field; where they differ, the real one's is a defect that the seed's notes list."""
    theirs = [
        event
        for event in both.real[name].events
        if event["event_type"] in ("LLM_CALL", "TOOL_CALL")
    ]
    ours = [
        event
        for event in both.ours[name].events
        if event["event_type"] in ("LLM_CALL", "TOOL_CALL")
    ]
    for real, own in zip(theirs, ours, strict=False):
        for field, value in real["payload"].items():
            if field == "usage" and value is not None:
                assert set(value.values()) == {"__REDACTED__"}
                assert own["payload"]["usage"]["total_tokens"] == 7
            elif field == "error" and value is not None:
                assert own["payload"]["error"]["error_type"] == value["error_type"]
                assert own["payload"]["error"]["message"] == value["message"]
            else:
                assert own["payload"][field] == value


@pytest.mark.parametrize("name", sorted(set(STATUS) - {"killed"}))
def test_counts_are_those_of_the_events(both: Both, name: str) -> None:
    run = both.ours[name]

    assert run.run["counts"] == {
        "llm_calls": len(run.of("LLM_CALL")),
        "tool_calls": len(run.of("TOOL_CALL")),
        "errors": len(run.of("ERROR")),
        "loop_warnings": len(run.of("LOOP_WARNING")),
    }


def test_no_secret_is_in_clear(both: Both) -> None:
    """In the real one's there is: on the command line, in an error's message and stack."""

    def text(runs: dict[str, RunDir]) -> str:
        return "".join((run.path / "events.jsonl").read_text() for run in runs.values())

    assert SECRET in text(both.real)
    assert SECRET not in text(both.ours)


def test_the_same_runs_are_in_the_home(both: Both) -> None:
    """Beside the journal, not instead of it."""
    stored = {run.info.id: run for run in load(both.home)}

    for run in both.ours.values():
        spans = [
            span
            for span in stored[run.run["run_id"]].spans
            if span.type in ("llm", "tool", "state")
        ]
        kinds = ("LLM_CALL", "TOOL_CALL", "STATE_UPDATE")
        assert len(spans) == sum(event["event_type"] in kinds for event in run.events)


# --- its own tools --------------------------------------------------------------------------------


def test_the_real_package_lists_our_runs(both: Both, agentdbg: Path) -> None:
    """The killed one too."""
    listed = json.loads(tool(agentdbg, both, "list", "--json", "-n", "100").stdout)["runs"]

    assert {run["run_name"]: run["status"] for run in listed} == STATUS
    assert [run for run in listed if run["run_name"] == "sync"] == [both.ours["sync"].run]


@pytest.mark.parametrize("name", ["nested", "killed"])
def test_the_real_package_exports_our_runs(
    both: Both, agentdbg: Path, tmp_path: Path, name: str
) -> None:
    run = both.ours[name]
    done = tool(agentdbg, both, "export", run.run["run_id"], "--out", str(tmp_path / "out.json"))

    exported = json.loads((tmp_path / "out.json").read_text())
    assert done.returncode == 0, done.stderr
    assert exported["run"] == run.run
    assert exported["events"] == run.events


def test_the_real_viewer_opens_our_runs(both: Both, agentdbg: Path) -> None:
    """Its server hands the page what we wrote, event by event."""
    port = free_port()
    server = subprocess.Popen(
        [str(agentdbg.parent / "agentdbg"), "view", "--no-browser", "--port", str(port)],
        env=environment(both.ours_dir, both.home, ours=False),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for name in ("nested", "killed"):
            run = both.ours[name]
            got = fetch(f"http://127.0.0.1:{port}/api/runs/{run.run['run_id']}/events")
            assert got["events"] == run.events
    finally:
        server.terminate()
        server.wait(120)


def test_signatures_are_those_of_the_real_package(agentdbg: Path) -> None:
    """Names, order, kinds and defaults of all parameters."""
    source = (
        "import importlib, inspect, json, sys\n"
        "module = importlib.import_module(sys.argv[1])\n"
        "names = [n for n in module.__all__ if inspect.isfunction(getattr(module, n))]\n"
        "print(json.dumps({n: [(p.name, p.kind, repr(p.default)) for p in\n"
        "    inspect.signature(getattr(module, n)).parameters.values()] for n in sorted(names)}))\n"
        "print(sorted(module.__all__))\n"
    )
    signatures = [
        subprocess.run(
            [str(python), "-W", "ignore", "-c", source, module],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for python, module in ((agentdbg, "agentdbg"), (Path(sys.executable), "vestige.agentdbg"))
    ]

    assert signatures[0] == signatures[1]


def tool(agentdbg: Path, both: Both, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(agentdbg.parent / "agentdbg"), *arguments],
        env=environment(both.ours_dir, both.home, ours=False),
        capture_output=True,
        text=True,
        timeout=120,
    )


def fetch(url: str, wait_s: float = WAIT_S) -> Any:
    """Ask a server that may still be starting."""
    deadline = monotonic() + wait_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                return json.load(answer)
        except OSError:
            if monotonic() > deadline:
                raise
            sleep(0.1)  # it says nothing when it is ready
