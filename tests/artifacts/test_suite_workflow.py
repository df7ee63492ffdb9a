"""The example workflow for GitHub, run: its steps in their order, under the conditions that they
state.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.pytest_suites import assert_valid, environment_for, make_project, only_bundle, statuses

WORKFLOW = Path(__file__).parents[2] / "examples/github/tests.yml"

PASSING = "def test_ok(): pass\n"
FAILING = "def test_ok(): pass\ndef test_bad(): assert 1 == 2\n"
INVALID = """
def test_ok(request):
    plugin = request.config.pluginmanager.get_plugin("vestige-bundle")
    (plugin._suite.path / "bad.json").write_text("{")
"""
KILLED = "import os\ndef test_ok(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\n"


def _steps() -> list[dict[str, Any]]:
    job: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["tests"]
    return list(job["steps"])


def _commands(folder: Path) -> Path:
    """`pytest` and `vestige` as an installation gives them, of this tree."""
    folder.mkdir()
    for name, words in (("pytest", "-m pytest -p vestige_pytest"), ("vestige", "-m vestige")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


class Job:
    """What GitHub does with the steps: all but the set-up, each in a shell that stops at an
    error.
    """

    def __init__(self, tmp_path: Path, source: str) -> None:
        self.project = make_project(tmp_path / "shop", source)
        self.summary = tmp_path / "summary.md"
        self.outcomes: dict[str, str] = {}
        self.printed = ""
        env = environment_for(self.project, {"GITHUB_STEP_SUMMARY": str(self.summary)})
        env["PATH"] = f"{_commands(tmp_path / 'bin')}:{env['PATH']}"
        for step in _steps():
            if "name" in step:
                self.outcomes[step["name"]] = self._run(step, env)

    def _run(self, step: dict[str, Any], env: dict[str, str]) -> str:
        if not self._is_due(step.get("if", "success()")):
            return "skipped"
        if "uses" in step:
            return "success"
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=self.project,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.printed += done.stdout + done.stderr
        return "failure" if done.returncode else "success"

    def _is_due(self, condition: str) -> bool:
        if condition == "success()":
            return "failure" not in self.outcomes.values()
        if condition == "always()":
            return True
        assert condition == "always() && steps.validate.outcome == 'success'"
        return self.outcomes["Validate"] == "success"

    @property
    def bundle(self) -> Path:
        return only_bundle(self.project / "tests/artifacts")


def test_the_workflow_validates_before_it_uploads_and_keeps_for_14_days() -> None:
    """The seed: 14 days, the whole tree, and nothing is uploaded that was not validated."""
    steps = {step["name"]: step for step in _steps() if "name" in step}
    upload = steps["Upload"]

    assert list(steps) == ["Test", "Finish what was killed", "Validate", "Upload"]
    assert steps["Validate"]["id"] == "validate"
    assert upload["uses"].startswith("actions/upload-artifact@")
    assert upload["if"] == "always() && steps.validate.outcome == 'success'"
    assert upload["with"]["retention-days"] == 14
    assert upload["with"]["path"] == "tests/artifacts"
    assert upload["with"]["path"] in steps["Test"]["run"]
    assert "continue-on-error" not in WORKFLOW.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "outcomes", "summary"),
    [
        (PASSING, "success success success success", "0 of 1 cases failed"),
        (FAILING, "failure success success success", "1 of 2 cases failed"),
        (INVALID, "failure success failure skipped", "0 of 1 cases failed"),
        (KILLED, "failure success success success", "1 of 2 cases failed"),
    ],
    ids=["passing", "failing", "invalid", "killed"],
)
def test_the_steps_run_as_the_workflow_says(
    tmp_path: Path, source: str, outcomes: str, summary: str
) -> None:
    """A failed suite is uploaded, an invalid bundle is not, a killed suite is finished first."""
    job = Job(tmp_path, source)

    assert list(job.outcomes.values()) == outcomes.split(), job.printed
    assert summary in job.summary.read_text()
    if source is INVALID:
        assert "::error" in job.printed
        assert "bad.json" in job.printed
    else:
        assert_valid(job.bundle)
    if source is KILLED:
        assert statuses(job.bundle) == {"test_ok": "pass", "test_dies": "unknown"}
    assert "Traceback" not in job.printed
