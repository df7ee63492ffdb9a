"""The published package agentdbg 0.3.0 and Vestige read each other's runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.programs import WAIT_S, free_port
from vestige.collector.loop import catch_up
from vestige.formats.agentdbg import recover_runs
from vestige.home import Home
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path

pytestmark = pytest.mark.slow

CLI = "from agentdbg.cli import main; main()"
PROGRAM = """
import os, signal
from agentdbg import trace, traced_run, record_llm_call, record_tool_call, record_state

with traced_run(name="happy"):
    record_state({"step": 0}, diff={"added": ["step"]}, meta={"tag": "init"})
    record_llm_call(model="gpt-4o", prompt=[{"role": "user", "content": "Hei Å"}], response="hi",
                    usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
                    provider="openai", temperature=0.5, stop_reason="stop")
    for _ in range(4):
        record_tool_call("search", args={"q": 1}, result=[1, 2])

@trace(name="failed")
def failed():
    record_tool_call("calc", args="1/0", status="error", error=ZeroDivisionError("no"))
    raise ValueError("exploded")

try:
    failed()
except ValueError:
    pass

with traced_run(name="killed"):
    record_tool_call("before", args={"x": 1}, result="r")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(python: Path, *arguments: str, data: Path) -> subprocess.CompletedProcess[str]:
    """The real thing, with a data directory of its own."""
    env = {**os.environ, "AGENTDBG_DATA_DIR": str(data), "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(python), *arguments], env=env, cwd=data, capture_output=True, text=True, timeout=WAIT_S
    )


@pytest.fixture(scope="module")
def theirs(agentdbg: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that the real package wrote: a run that is ok, one that failed, one
    killed.
    """
    data = tmp_path_factory.mktemp("theirs")
    (data / "program.py").write_text(PROGRAM)
    done = run(agentdbg, "program.py", data=data)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return data


@pytest.fixture
def ours(home: Home, tmp_path: Path) -> Path:
    """A data directory that Vestige wrote: a run that failed inside, one that was left open."""
    recorder = Recorder(home)
    with recorder.run("ours") as first:
        with first.span("plan", "step") as step:
            with step.span("gpt-4o", "llm", {"model": "gpt-4o"}, body='[{"role":"user"}]') as llm:
                llm.end(body="hello", attributes={"input_tokens": 3, "output_tokens": 2})
            with step.span("search", "tool", body={"q": "x"}) as tool:
                tool.end(ValueError("no"))
        with first.span("memory", "state", body={"k": float("nan")}):
            pass
    second = recorder.run("left open")
    second.child("search", "tool").end(body="r")
    catch_up(home)
    data = tmp_path / "ours"
    with SqliteStore.open(home.store, readonly=True) as store:
        for one in (first, second):
            export_run(store, one.run_id, "agentdbg", data / "runs")
    second.end()
    recorder.close()
    return data


def events_of(run: Path) -> list[dict[str, Any]]:
    lines = (run / "events.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def test_the_real_package_lists_and_exports_what_we_wrote(agentdbg: Path, ours: Path) -> None:
    """Nothing is skipped, nothing is warned about, the order is ours."""
    listed = run(agentdbg, "-c", CLI, "list", "--json", data=ours)
    runs = json.loads(listed.stdout)["runs"]

    assert {one["run_name"]: one["status"] for one in runs} == {
        "ours": "ok",
        "left open": "running",
    }
    for one in runs:
        out = ours / f"{one['run_id']}.json"
        done = run(agentdbg, "-c", CLI, "export", one["run_id"], "-o", str(out), data=ours)
        assert done.returncode == 0, done.stderr
        assert "corrupt" not in done.stderr
        assert json.loads(out.read_text())["events"] == events_of(ours / "runs" / one["run_id"])


def test_the_real_viewer_opens_what_we_wrote(agentdbg: Path, ours: Path) -> None:
    with viewer(agentdbg, ours) as address:
        listed = fetch(f"{address}/api/runs")["runs"]
        for one in listed:
            shown = fetch(f"{address}/api/runs/{one['run_id']}/events")["events"]

            assert shown == events_of(ours / "runs" / one["run_id"])
        page = urllib.request.urlopen(address, timeout=WAIT_S).read()

    assert len(listed) == 2 and b"<html" in page.lower()


@contextmanager
def viewer(python: Path, data: Path) -> Iterator[str]:
    port = free_port()
    env = {**os.environ, "AGENTDBG_DATA_DIR": str(data), "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [str(python), "-c", CLI, "view", "--no-browser", "--port", str(port)],
        env=env,
        cwd=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(1200):  # a server says that it is up by answering
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)  # its server does not say when it is ready
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WAIT_S)


def fetch(address: str) -> Any:
    return json.load(urllib.request.urlopen(address, timeout=WAIT_S))


def test_we_open_what_the_real_package_writes(theirs: Path, tmp_path: Path) -> None:
    """Equal counts and order; the killed one, which it shows as running for ever, is
    interrupted.
    """
    folders = sorted((theirs / "runs").iterdir())
    with SqliteStore.open(tmp_path / "store.db") as store:
        imported = list(import_path(store, theirs))
        runs = {folder: store.load_run(folder.name) for folder in folders}

    assert [one.path for one in imported] == folders
    assert all(not one.problems for one in imported)
    for folder, found in runs.items():
        events = events_of(folder)
        expected = [e["event_id"] for e in events if e["event_type"] != "RUN_END"]
        nodes = sorted([*found.spans, *found.logs], key=lambda node: node.seq or 0)
        assert [n.attributes.get("event_id") for n in nodes if n.component != "vestige"] == expected
    outcomes = {found.info.name: found.info.outcome for found in runs.values()}
    # It was killed a moment ago, and holds no lock: for some minutes nobody can know.
    assert outcomes == {"happy": "ok", "failed": "error", "killed": "running"}


def test_an_export_of_the_real_package_is_read(
    agentdbg: Path, theirs: Path, tmp_path: Path
) -> None:
    folder = next(f for f in (theirs / "runs").iterdir() if len(events_of(f)) > 5)
    out = tmp_path / "export.json"
    run(agentdbg, "-c", CLI, "export", folder.name, "-o", str(out), data=theirs)
    with SqliteStore.open(tmp_path / "store.db") as store:
        (first,) = import_path(store, out)
        (second,) = import_path(store, folder)

    assert first.records > 0 and second.records == 0 and first.run_id == second.run_id


def test_the_real_package_opens_its_own_run_after_we_recovered_it(
    agentdbg: Path, theirs: Path, tmp_path: Path
) -> None:
    """Finished on disk: it is listed as an error, with the counts that its events have."""
    data = tmp_path / "data"
    shutil.copytree(theirs, data)
    for folder in (data / "runs").iterdir():
        os.utime(folder / "events.jsonl", ns=(10**18, 10**18))
    finished = [path for path, left in recover_runs(data) if not left]
    listed = json.loads(run(agentdbg, "-c", CLI, "list", "--json", data=data).stdout)["runs"]

    killed = next(one for one in listed if one["run_name"] == "killed")
    assert len(finished) == 1
    assert killed["status"] == "error"
    assert killed["counts"] == {"llm_calls": 0, "tool_calls": 1, "errors": 1, "loop_warnings": 0}


ABORTED = """
from vestige.agentdbg import AgentDbgGuardrailExceeded, record_llm_call, traced_run
try:
    with traced_run("aborted", max_llm_calls=2):
        for number in range(5):
            record_llm_call("m", prompt=f"p{number}")
except AgentDbgGuardrailExceeded:
    pass
"""


def test_the_real_assert_sees_a_guardrail_of_a_live_run(
    agentdbg: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate in CI: an aborted run must not pass it."""
    data = tmp_path / "data"
    environment = {**os.environ, "AGENTDBG_DATA_DIR": str(data), "VESTIGE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ABORTED], check=True, env=environment)
    (made,) = (data / "runs").iterdir()

    done = run(agentdbg, "-c", CLI, "assert", made.name, "--no-guardrails", data=data)

    assert done.returncode == 1, done.stdout
    assert "1 guardrail event" in done.stdout
