"""The newest releases of vendors' programs under `vestige run`: requests, tools, sub-agents, kills.

Each program talks to a scripted model on loopback, in a home folder of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.coding_agents import (
    MAKERS,
    PROMPT,
    Desk,
    find_modules,
    make_workplace,
)
from support.commands import vestige_process
from support.frameworks import find_findings
from support.programs import WAIT_S, load
from support.provider_calls import calls_in
from support.provider_server import Seen, Server
from support.scripted_model import Call, ScriptedModel, Turn, decompress
from vestige.home import Home
from vestige.record.run import Run, SpanInfo

pytestmark = pytest.mark.full

RUN = [sys.executable, "-m", "vestige", "run", "--"]
SUB_AGENTS = {"claude": "Agent", "codex": "spawn_agent", "opencode": "task"}
"""The tool that starts a sub-agent. Gemini's are not in its script."""
TOOLS = {
    "claude": ["Read", "Bash", "Edit", "Write", "Bash", "Bash", "Bash", "Agent"],
    "codex": [
        "exec_command",
        "exec_command",
        "apply_patch",
        "exec_command",
        "exec_command",
        "view_image",
        "spawn_agent",
        "wait_agent",
    ],
    "gemini": [
        "read_file",
        "run_shell_command",
        "replace",
        "write_file",
        "run_shell_command",
        "run_shell_command",
        "read_file",
    ],
    "opencode": ["read", "bash", "edit", "write", "bash", "bash", "read", "task"],
}
SHELLS = {
    "claude": ("Bash", "command"),
    "codex": ("exec_command", "cmd"),
    "gemini": ("run_shell_command", "command"),
    "opencode": ("bash", "command"),
}
"""The tool that runs commands, and its argument."""
WAIT = """import os, pathlib, time
pathlib.Path("partial").write_text(str(os.getpid()))
pathlib.Path("partial").rename("started")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return find_modules(tmp_path_factory.mktemp("agents")).resolve()
    except LookupError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("agent", TOOLS)
def test_requests_tools_and_sub_agents_of_a_program_are_recorded(
    agent: str, modules: Path, home: Home, tmp_path: Path
) -> None:
    make, scripts = MAKERS[agent]
    work = make_workplace(tmp_path / "desk")
    with Server(ScriptedModel(scripts(work))) as server:
        desk = Desk(modules, tmp_path / "desk" / "home", work, server, RUN, _variables(home))
        make(desk)
        sent = sorted(_canonical(decompress(seen)) for seen in server.seen if _is_call(seen))

    assert sorted(_canonical(call.request) for call in calls_in(home)) == sent
    run = max(load(home), key=lambda each: len(each.spans))
    assert run.info.name == agent
    outer, *helpers = _of_type(run, "agent")
    assert (outer.name, _parent(run, outer).type) == (agent, "run")
    main = [span for span in _of_type(run, "tool") if span.parent_id == outer.id]
    assert [span.name for span in main] == TOOLS[agent]
    assert all(span.input is not None and span.output is not None for span in main)
    assert all(span.attributes["inferred"] for span in main)
    if agent in SUB_AGENTS:
        (helper,) = helpers
        assert _parent(run, helper).name == SUB_AGENTS[agent]
        inside = [span.type for span in run.spans if span.parent_id == helper.id]
        assert inside == ["llm", "tool", "llm"]
    assert PROMPT[:30] in vestige_process("list").stdout
    text = vestige_process("check", run.info.id).stdout
    found = {code for severity, code, _ in find_findings(text) if severity != "hint"}
    assert found <= {"tool/failed", "resource/missing"}, text
    assert list((home.root / "proxies").iterdir()) == []
    assert _find_traces(tmp_path / "desk", str(home.root)) == []


@pytest.mark.parametrize("agent", TOOLS)
def test_a_kill_during_a_tool_call_names_the_tool(
    agent: str, modules: Path, home: Home, tmp_path: Path
) -> None:
    make, scripts = MAKERS[agent]
    work = make_workplace(tmp_path / "desk")
    (work / "wait.py").write_text(WAIT)
    tool, argument = SHELLS[agent]
    arguments = {argument: "python3 wait.py", "description": "Wait"}
    if agent == "codex":
        del arguments["description"]
    script = {**scripts(work), PROMPT: [Turn(calls=[Call(tool, arguments)])]}
    with Server(ScriptedModel(script)) as server:
        desk = KillingDesk(modules, tmp_path / "desk" / "home", work, server, RUN, _variables(home))
        with pytest.raises(KilledError):
            make(desk)

    run = max(load(home), key=lambda each: each.info.started_ns)
    (span,) = [span for span in _of_type(run, "tool") if span.name == tool]
    assert span.status == "interrupted"
    text = vestige_process("check", run.info.id).stdout
    assert f"killed by SIGKILL in tool {tool}" in text
    assert find_findings(text)[0][1] == "crash/SIGKILL"


class KilledError(Exception):
    """The program was killed."""


class KillingDesk(Desk):
    """Kills the program while its first tool waits."""

    def run(
        self, program: str, *arguments: str, env: dict[str, str], check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        if PROMPT not in arguments:
            return super().run(program, *arguments, env=env, check=check)
        command = [*self.prefix, str(self.modules / ".bin" / program), *arguments]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **env, **self.env}
        running = subprocess.Popen(
            command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + WAIT_S
        try:
            while not (self.work / "started").exists():
                assert time.monotonic() < deadline and running.poll() is None
                time.sleep(0.05)
        finally:
            # A launcher's program lives on without it, and waits for the network. The tool is last.
            for pid in _find_programs(running.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        running.wait()
        raise KilledError


def _find_programs(pid: int) -> list[int]:
    """Return the processes below one, parents first, without the proxy."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # It has ended in the meantime.
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if b"vestige.proxy" not in Path(f"/proc/{child}/cmdline").read_bytes():
                found += [child, *_find_programs(child)]
    return found


def _variables(home: Home) -> dict[str, str]:
    return {"VESTIGE_HOME": str(home.root)}


def _is_call(seen: Seen) -> bool:
    path = seen.path.partition("?")[0]
    ends = ("/messages", "/responses", "/chat/completions", "enerateContent")
    return seen.method == "POST" and path.endswith(ends)


def _canonical(body: bytes) -> str:
    return json.dumps(json.loads(body), sort_keys=True)


def _of_type(run: Run, kind: str) -> list[SpanInfo]:
    return [span for span in run.spans if span.type == kind]


def _parent(run: Run, span: SpanInfo) -> SpanInfo:
    return next(each for each in run.spans if each.id == span.parent_id)


def _find_traces(folder: Path, text: str) -> list[Path]:
    """Return the files in a folder that contain a text."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes()
    ]
