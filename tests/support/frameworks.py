"""Agents of many frameworks in tests/data/frameworks, run plain, recorded and replayed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.programs import WAIT_S, load
from vestige.home import Home
from vestige.record.run import Run, SpanInfo
from vestige.store.sqlite.sqlite_store import SqliteStore

FOLDER = Path(__file__).parent.parent / "data" / "frameworks"
GUIDES = Path(__file__).parents[2] / "docs" / "guides" / "frameworks"
TOOLS = ("look_up_order", "get_exchange_rate", "get_exchange_rate", "convert")
"""The tools that each agent calls, in order. The second call fails."""


class Provider(NamedTuple):
    """A loopback provider that drives the agents, and the file with its requests."""

    port: int
    log: Path

    def environment(self, port: int | None = None) -> dict[str, str]:
        address = f"http://127.0.0.1:{port or self.port}"
        return {
            **{key: value for key, value in os.environ.items() if "VESTIGE" not in key},
            "OPENAI_API_KEY": "sk-fake",
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_BASE": f"{address}/v1",
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "ANTHROPIC_BASE_URL": address,
            "OPENAI_AGENTS_DISABLE_TRACING": "0",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONWARNINGS": "ignore",
        }

    def digests(self) -> list[tuple[str, str]]:
        """The digests of each request and response so far; they are forgotten then."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        return sorted((line["req_sha"], line["res_sha"]) for line in lines if line["req"])


@contextmanager
def start_provider(folder: Path) -> Iterator[Provider]:
    log = folder / "requests.jsonl"
    command = [sys.executable, str(FOLDER / "provider.py"), "0", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Provider(int(process.stdout.readline()), log)
        finally:
            process.terminate()


class Recording(NamedTuple):
    """A recorded agent, and the digests of its bodies."""

    output: str
    run: Run
    digests: list[tuple[str, str]]

    def of_type(self, *types: str) -> list[SpanInfo]:
        return [span for span in self.run.spans if span.type in types]


def make_environment(folder: Path, packages: tuple[str, ...]) -> str | None:
    """Install packages in an environment of their own, and return its Python; None without them.

    uv does it where it is installed: some of these packages need a minute with pip.
    """
    uv = shutil.which("uv")
    make = [uv, "venv", "-q", "-p", sys.executable] if uv else [sys.executable, "-m", "venv"]
    subprocess.run([*make, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [uv, "pip", "install", "-p", python] if uv else [python, "-m", "pip", "install"]
    done = subprocess.run([*install, "-q", *packages], capture_output=True, check=False)
    return None if done.returncode else python


def run_plain(python: str, agent: str, provider: Provider) -> str:
    return _run([python, agent], provider.environment())


def record_agent(home: Home, python: str, agent: str, provider: Provider) -> Recording:
    command = [*_tool("run", "-q"), "--home", str(home.root), "--", python, agent]
    output = _run(command, provider.environment())
    run = max(load(home), key=lambda each: len(each.spans))
    with SqliteStore.open(home.store, readonly=True) as store:
        digests = sorted(
            (_digest(store, span, "input"), _digest(store, span, "output"))
            for span in run.spans
            if span.type == "llm"
        )
    return Recording(output, run, digests)


def replay_agent(
    home: Home, run: Run, python: str, agent: str, provider: Provider, *options: str
) -> str:
    replay = _tool("replay", "--home", str(home.root), *options)
    command = [*replay, run.info.id, "--", python, agent]
    return _run(command, provider.environment(port=9))


def replay_tools(home: Home, run: Run, python: str, agent: str, folder: Path) -> tuple[str, str]:
    """Replay an agent with recorded tools, in a copy whose tools fail. Return stdout and stderr."""
    shutil.copytree(FOLDER, folder)
    shop = (folder / "shop.py").read_text(encoding="utf-8")
    (folder / "shop.py").write_text(
        re.sub(r"( {4}\"\"\"\n(?! *Args))", r"\1    raise SystemExit('the tool ran')\n", shop)
    )
    options = ("--home", str(home.root), run.info.id, "--tools", "recorded")
    command = [*_tool("replay", *options), "--", python, agent]
    provider = Provider(9, folder / "requests.jsonl")
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=folder,
        # CrewAI traces its first execution on a machine by itself.
        env={**provider.environment(), "XDG_DATA_HOME": str(folder / "data")},
        check=False,
    )
    return done.stdout, done.stderr


class TreeLine(NamedTuple):
    """A line of a tree, without arguments, times and tokens."""

    depth: int
    type: str
    name: str
    status: str


_LINE = re.compile(r"( *)(agent|step|tool|llm|handoff|retriever|guardrail) (.+?) → (\w+)")


def read_guide(page: str) -> list[TreeLine]:
    """Return the first tree in the guide of a framework."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    tree = text.partition("```text\n")[2].partition("```")[0]
    return [
        TreeLine(len(found[1]) // 2, found[2], re.sub(r" ?[(\[].*", "", found[3]), found[4])
        for found in map(_LINE.match, tree.splitlines())
        if found is not None
    ]


def make_tree(run: Run) -> list[TreeLine]:
    """Return the tree of a run as in the guides, which leave out its processes."""
    inside: dict[str | None, list[SpanInfo]] = {}
    ids = {span.id for span in run.spans}
    for span in run.spans:
        inside.setdefault(span.parent_id if span.parent_id in ids else None, []).append(span)
    lines: list[TreeLine] = []

    def add(parent: str | None, depth: int) -> None:
        for span in inside.get(parent, ()):
            is_shown = span.type not in ("run", "process")
            if is_shown:
                lines.append(TreeLine(depth, span.type, span.name, span.status or ""))
            add(span.id, depth + is_shown)

    add(None, 0)
    return lines


def check(home: Home, run: Run) -> str:
    command = [*_tool("check", run.info.id), "--home", str(home.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.stdout


def find_findings(text: str) -> list[tuple[str, str, str]]:
    """The severity, code and span of each finding in the output of `vestige check`."""
    return re.findall(r"^\[(\w+)\] (\S+) at \S+\.(s\d+)", text, re.MULTILINE)


def _tool(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "vestige", *arguments]


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, cwd=FOLDER, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _digest(store: SqliteStore, span: SpanInfo, side: str) -> str:
    ref = span.input if side == "input" else span.output
    assert ref is not None and ref.id is not None
    body = store.read_body(ref.id)
    assert body is not None
    return hashlib.sha256(body).hexdigest()
