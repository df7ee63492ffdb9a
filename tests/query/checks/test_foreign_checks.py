"""Another package adds checks by an entry point; one that is broken hides nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vestige.home import Home
from vestige.recorder import Recorder

CHECK = """
from vestige.query.checks import check, make_finding

@check(
    "no-haste",
    title="A tool in a hurry",
    looks_at="tool spans",
    severity="error",
    confidence=0.5,
    false_positives="quick tools",
)
def no_haste(evidence):
    for span in evidence.of_type("tool"):
        yield make_finding(
            evidence, "no-haste", cause=span.id, message="too quick", evidence=[span.id]
        )
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Two installed packages, as pip would leave them: one good, one that cannot be imported."""
    folder = tmp_path / "packages"
    for name, source in (("goodcheck", CHECK), ("badcheck", "import no_such_module")):
        info = folder / f"{name}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[vestige.checks]\n{name} = {name}\n")
        (folder / f"{name}.py").write_text(source)
    return folder


def test_a_check_of_another_package_runs_like_ours(home: Home, packages: Path) -> None:
    """Its finding is printed, with the exit code for findings; the broken one is named."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.span("search", type="tool").end()
    env = {**os.environ, "PYTHONPATH": str(packages), "VESTIGE_HOME": str(home.root)}
    command = [sys.executable, "-m", "vestige", "check", "r2", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)

    assert done.returncode == 1
    assert [finding["message"] for finding in found["findings"]] == ["too quick"]
    assert "badcheck" in done.stdout + done.stderr
