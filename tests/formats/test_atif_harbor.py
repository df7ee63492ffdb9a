"""Harbor itself judges our trajectories, and converts a log that both of us read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vestige.formats.atif.validate import find_violations
from vestige.query.evidence import open_run
from vestige.store.protocol import RunFilter
from vestige.transfer.export import export_run
from vestige.transfer.temp_store import load_runs

DATA = Path(__file__).parent.parent / "data"
VALIDATE = """
import sys
from harbor.utils.trajectory_validator import TrajectoryValidator
for path in sys.argv[1:]:
    validator = TrajectoryValidator()
    if not validator.validate(path):
        print(path, validator.errors)
"""
CONVERT = """
import sys
from pathlib import Path
from harbor.agents.installed.mini_swe_agent import convert_and_save_trajectory
convert_and_save_trajectory(Path(sys.argv[1]), Path(sys.argv[2]), "session-1")
"""
CONVERT_SESSION = """
import json, sys
from pathlib import Path
from harbor.agents.installed.claude_code import ClaudeCode
from harbor.agents.installed.codex import Codex
program, folder, target = sys.argv[1:]
agent = {"claude_code": ClaudeCode, "codex": Codex}[program](
    logs_dir=Path(target).parent, model_name="x/y"
)
trajectory = agent._convert_events_to_trajectory(Path(folder))
Path(target).write_text(json.dumps(trajectory.to_json_dict()))
"""
SESSIONS = {
    "claude_code": "projects/-home-dev-calc/5a3a2b1c-0000-4000-8000-000000000001.jsonl",
    "codex": "sessions/**/*-17-*.jsonl",
}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Harbor, which needs Python 3.12 or newer, or that of $HARBOR_PYTHON."""
    if "HARBOR_PYTHON" in os.environ:
        return Path(os.environ["HARBOR_PYTHON"])
    installed = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    for name in (*map(str, installed), "python3.13", "python3.12", "python3.14"):
        python = shutil.which(name)
        if python is not None and _works(python):
            folder = tmp_path_factory.mktemp("harbor")
            subprocess.run([python, "-m", "venv", folder], check=True)
            pip = [folder / "bin/python", "-m", "pip", "install", "-q", "harbor"]
            subprocess.run(pip, check=True)
            return folder / "bin/python"
    pytest.skip("no Python 3.12 or newer on PATH")


def _works(python: str) -> bool:
    """Return whether a Python runs: a shim of pyenv may lead nowhere."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def test_harbor_accepts_what_we_export(harbor: Path, tmp_path: Path) -> None:
    sources = [*(DATA / "atif").glob("v1.*.json"), DATA / "inspect", DATA / "traces/mlflow.json"]
    sources.append(DATA / "messages/mini-swe-agent.traj.json")
    written = []
    for number, source in enumerate(sources):
        temporary = load_runs(source)
        for info in temporary.store.list_runs(RunFilter()):
            target = tmp_path / f"{number}-{info.short_id}.json"
            written.append(export_run(temporary.store, info.id, "atif", target))
        temporary.close()
    assert len(written) > 10
    done = subprocess.run(
        [harbor, "-c", VALIDATE, *written], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_harbor_reads_a_run_of_mini_swe_agent_as_we_do(harbor: Path, tmp_path: Path) -> None:
    source = DATA / "messages/mini-swe-agent.traj.json"
    target = tmp_path / "trajectory.json"
    subprocess.run([harbor, "-c", CONVERT, source, target], check=True)
    theirs = json.loads(target.read_text())
    assert list(find_violations(theirs)) == []
    figures = []
    for path in (source, target):
        temporary = load_runs(path)
        (info,) = temporary.store.list_runs(RunFilter())
        evidence = open_run(temporary.store, info.id)
        arguments = [evidence.input(tool) for tool in evidence.of_type("tool")]
        commands = [json.loads(text or "{}").get("command") for text in arguments]
        figures.append((info.input_tokens, info.output_tokens, commands))
        temporary.close()
    assert figures[0] == figures[1]


@pytest.mark.parametrize("program", SESSIONS)
def test_harbor_reads_a_session_as_we_do(program: str, harbor: Path, tmp_path: Path) -> None:
    """Tokens are the same, and tools in order with their arguments."""
    (source,) = (DATA / program).glob(SESSIONS[program])
    folder, target = tmp_path / "session", tmp_path / "out" / "trajectory.json"
    folder.mkdir()
    target.parent.mkdir()
    session = Path(shutil.copy(source, folder))
    if source.with_suffix("").is_dir():
        shutil.copytree(source.with_suffix(""), session.with_suffix(""))
    command = [harbor, "-c", CONVERT_SESSION, program, folder, target]
    subprocess.run(command, check=True, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    figures = []
    for path in (session, target):
        temporary = load_runs(path)
        (info,) = temporary.store.list_runs(RunFilter())
        evidence = open_run(temporary.store, info.id)
        tools = [(tool.name, _parse(evidence.input(tool))) for tool in evidence.of_type("tool")]
        figures.append((info.input_tokens, info.output_tokens, tools))
        temporary.close()
    assert figures[0] == figures[1]


def _parse(text: str | None) -> Any:
    """Return arguments; a text that a free-form tool gets is the member `input` for Harbor."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return text
    return value["input"] if isinstance(value, dict) and set(value) == {"input"} else value
