"""The newest releases of coding agents: sessions that they write now are read completely."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.agent_logs import find_session, imported, load_runs, of_type
from support.coding_agents import PACKAGES, PROGRAMS, find_modules, make_samples
from support.scripted_model import TITLE

HOMES = {
    "claude": "home/.claude",
    "codex": "home/.codex",
    "gemini": "home/.gemini",
    "opencode": "home/.local/share/opencode",
    "kilo": "home/.local/share/kilo",
    "goose": "home/.local/share/goose",
    "cline": "home/.cline",
    "openhands": "home/.openhands",
}
SUMMARIES = {"claude": 1}
"""Answers that an agent does not log besides titles: the summary of a compaction."""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return find_modules(tmp_path_factory.mktemp("agents"))
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def openhands(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Install OpenHands, unless $OPENHANDS_PYTHON has it."""
    if "OPENHANDS_PYTHON" in os.environ:
        return
    found = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    python = next(map(str, found), None) or shutil.which("python3.12") or shutil.which("python3.13")
    if python is None:
        pytest.skip("Python 3.12 is not installed")
    folder = tmp_path_factory.mktemp("openhands")
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    done = subprocess.run(
        [str(folder / "bin" / "pip"), "install", "-q", "openhands-sdk", "openhands-tools"],
        capture_output=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip cannot install: {done.stderr[-300:]!r}")
    PROGRAMS["openhands"] = str(folder / "bin" / "python")


def test_conversations_of_the_newest_openhands_have_the_true_tokens(
    openhands: None, tmp_path: Path
) -> None:
    check_tokens("openhands", tmp_path, tmp_path)


@pytest.mark.parametrize("agent", PACKAGES)
def test_sessions_of_the_newest_release_have_the_true_tokens(
    agent: str, modules: Path, tmp_path: Path
) -> None:
    check_tokens(agent, modules, tmp_path)


def check_tokens(agent: str, modules: Path, tmp_path: Path) -> None:
    make_samples(modules, tmp_path, [agent])
    truth = json.loads((tmp_path / agent / "truth.json").read_text())
    with imported(tmp_path, tmp_path / agent / HOMES[agent]) as store:
        runs = load_runs(store)
        counted = [
            (span.attributes["input_tokens"], span.attributes["output_tokens"])
            for run in runs
            for span in of_type(run, "llm")
            if span.attributes.get("output_tokens")
        ]
        expected = [
            (each["input"] + each["cache_read"] + each["cache_write"], each["output"])
            for each in truth
        ]
        assert len(counted) == len(set(counted)) and set(counted) <= set(expected)
        # No agent logs its requests of titles, and some make one or none, as time permits.
        unlogged = [tokens for tokens in expected if tokens not in counted]
        others = [tokens for tokens in unlogged if tokens[1] != TITLE.count_tokens()]
        assert len(others) == SUMMARIES.get(agent, 0)
        run = find_session(store)
        assert run.info.outcome == "ok"
        assert {"error", "ok"} <= {span.status for span in of_type(run, "tool")}
