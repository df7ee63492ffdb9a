"""`vestige gate` on a real program: exit codes, baselines, reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vestige.home import Home

AGENT = """
import os, vestige
with vestige.Recorder().run("desk") as run:
    for number in range(int(os.environ.get("CALLS", "2"))):
        call = run.span("chat", "llm", {"model": "gpt-4o", "input_tokens": 100})
        call.end()
        run.span(os.environ.get("TOOL", "look_up"), "tool", body=str(number)).end(body="done")
print("the agent's output")
raise SystemExit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


def _gate(home: Home, agent: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vestige", "gate", "--home", str(home.root), *options]
    command += [] if "--runs" in options else ["--", sys.executable, str(agent)]
    clean = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", **env}
    return subprocess.run(command, capture_output=True, text=True, env=clean, timeout=120)


@pytest.mark.slow
def test_a_gate_passes_the_same_program_and_fails_a_worse_one(
    home: Home, agent: Path, tmp_path: Path
) -> None:
    """Exit 0 passed, 1 failed with a reason; the reports name the same reasons."""
    baseline, junit, comment = (tmp_path / name for name in ("b.json", "j.xml", "c.md"))
    saved = _gate(home, agent, "--save", str(baseline))
    same = _gate(home, agent, "--baseline", str(baseline), "--json")
    worse = _gate(
        home,
        agent,
        *("--baseline", str(baseline), "--junit", str(junit), "--markdown", str(comment)),
        TOOL="delete_order",
        CODE="3",
        GITHUB_ACTIONS="true",
    )

    assert saved.returncode == 0 and "Gate passed: 1 trial" in saved.stdout, saved.stderr
    assert same.returncode == 0 and json.loads(same.stdout)["passed"] is True
    assert "the agent's output" in same.stderr
    assert worse.returncode == 1 and "✕ command-failed" in worse.stdout
    assert "::error title=new-tool::tool delete_order is not used in the baseline." in worse.stderr
    failed = {case.get("name") for case in ElementTree.parse(junit).iter("testcase")}
    assert {"command-failed", "new-tool"} <= failed
    assert comment.read_text().startswith("<!-- vestige-gate -->\n### ❌ Gate failed")


@pytest.mark.slow
def test_recorded_runs_are_gated_without_a_command(home: Home, agent: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[tools]\ndeny = ["look_*"]\n')
    _gate(home, agent)

    gated = _gate(home, agent, "--runs", "name:desk", "--policy", str(policy))
    neither = _gate(home, agent, "--runs", "name:none")
    broken = _gate(home, agent, "--baseline", str(policy))

    assert gated.returncode == 1 and "✕ policy/tool-denied" in gated.stdout, gated.stderr
    assert neither.returncode == 2 and "no run matches" in neither.stderr
    assert broken.returncode == 3 and "not a baseline" in broken.stderr


@pytest.mark.slow
def test_an_unknown_reason_to_ignore_is_a_usage_error(home: Home, agent: Path) -> None:
    result = _gate(home, agent, "--ignore", "more-tme")

    assert result.returncode == 2 and "no reason has this code" in result.stderr
    assert "the agent's output" not in result.stdout, "nothing was run"


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_found_before_the_trials(
    home: Home, agent: Path, tmp_path: Path
) -> None:
    for option in ("--save", "--junit", "--markdown"):
        result = _gate(home, agent, option, str(tmp_path / "missing" / "file"))

        assert result.returncode == 2 and "cannot be written" in result.stderr
        assert "the agent's output" not in result.stdout


@pytest.mark.slow
def test_trials_that_failed_are_no_baseline(home: Home, agent: Path, tmp_path: Path) -> None:
    """Unless the user ignores it: some programs report by their exit status."""
    baseline = tmp_path / "b.json"
    refused = _gate(home, agent, "--save", str(baseline), CODE="3")

    assert refused.returncode == 1 and "not written, because a trial failed" in refused.stderr
    assert not baseline.exists()

    ignored = _gate(home, agent, "--save", str(baseline), "--ignore", "command-failed", CODE="3")

    assert ignored.returncode == 0 and baseline.exists()


SUITE = """
import os

def test_always_fails():
    assert 1 == 2

def test_depends():
    assert not os.environ.get("BAD"), "it got worse"
"""


@pytest.mark.slow
def test_recorded_suites_are_compared_by_their_paths(home: Home, tmp_path: Path) -> None:
    """A test that failed before does not fail the gate."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ("-q", "-p", "no:cacheprovider", "--vestige-suite", "desk")
    for name, bad in (("old", ""), ("new", "1")):
        command = [sys.executable, "-m", "pytest", *options, f"--vestige-bundle={name}"]
        env = {"PATH": "/usr/bin:/bin", "BAD": bad, "VESTIGE_HOME": str(home.root)}
        subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=120)
    (old,) = (tmp_path / "old" / "desk").iterdir()
    (new,) = (tmp_path / "new" / "desk").iterdir()

    same = _gate(home, tmp_path, "--baseline", str(old), "--runs", str(old))
    worse = _gate(home, tmp_path, "--baseline", str(old), "--runs", str(new))

    assert same.returncode == 0, same.stdout + same.stderr
    assert worse.returncode == 1 and worse.stdout.count("✕ new-failure") == 1
    assert "it got worse" in worse.stdout and f"vestige overview r1 --home {new}" in worse.stdout
