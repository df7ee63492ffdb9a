"""Run `vestige` commands: in this process, or as a shell starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from vestige.cli.main import cli


def vestige(*arguments: object) -> Result:
    """Run a command in this process, which is quick, and return its output and exit code."""
    result = CliRunner().invoke(cli, [str(each) for each in arguments], prog_name="vestige")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def vestige_process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "vestige", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def vestige_json(*arguments: object) -> Any:
    """Return the JSON that a successful command prints."""
    result = vestige(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
