"""`wink`: our few commands, and weakincentives' own for all others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.weakincentives_env import ROOT, find_python
from vestige.cli.wink import is_ours

WINK = "import sys; sys.argv[0] = 'wink'; from vestige.cli.wink import main; main()"


def run(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [python, "-c", WINK, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_is_printed(arguments: tuple[str, ...]) -> None:
    result = run(sys.executable, *arguments)

    assert "Traceback" not in result.stderr
    assert "debug" in result.stdout + result.stderr
    assert "weakincentives" in result.stdout + result.stderr
    assert result.returncode == 0 or not arguments


def test_a_command_that_nobody_has_is_a_usage_error() -> None:
    result = run(sys.executable, "frobnicate")

    assert (result.returncode, "No such command" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("debug x.wink", True),
        ("debug x.wink --view logs --json", True),
        ("debug x.wink --view=logs", True),
        ("debug x.zip --port 8000", False),
        ("query x.zip --schema", False),
        ("--log-level DEBUG query x.zip", False),
        ("--version", True),
    ],
)
def test_only_what_is_not_ours_is_handed_on(line: str, ours: bool) -> None:
    assert is_ours(line.split()) is ours


@pytest.mark.full
def test_the_commands_of_the_real_package_still_work() -> None:
    python = find_python()
    if python is None:
        pytest.skip("weakincentives needs Python 3.12 or later, and there is none here")

    theirs, ours = run(python, "docs", "list"), run(python, "debug", "--help")

    assert (theirs.returncode, theirs.stderr) == (0, "")
    assert "DEBUG" in theirs.stdout.upper() and "No such command" not in theirs.stderr
    assert "--export-logs" in ours.stdout
