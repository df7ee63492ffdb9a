"""Harbor itself judges our trajectories, and converts a log that both of us read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

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

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Harbor, which needs Python 3.12 or newer."""
    for name in ("python3.13", "python3.12", "python3.14"):
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
