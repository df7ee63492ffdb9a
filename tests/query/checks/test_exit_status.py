"""Programs that exit with an error status, recorded by `vestige run`."""

from __future__ import annotations

import sys

import pytest

from support.commands import vestige
from support.planted_bugs import all_findings
from support.programs import RunProgram, load
from vestige.home import Home

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

OWN_RUN = """
import sys
import vestige

@vestige.trace
def main():
    return 111.96

if main() > 1:
    sys.exit("wrong total")
"""


def test_the_argument_of_sys_exit_is_recorded_and_named(
    home: Home, run_program: RunProgram
) -> None:
    done = run_program('import sys\nsys.exit("wrong total")', command=VESTIGE_RUN)

    (found,) = all_findings(home, "program.py")

    assert done.stderr.startswith("wrong total\n")
    assert (found.kind, found.severity) == ("exit/status", "hint")
    assert found.message == "the program exited with status 1. It printed: wrong total"


@pytest.mark.parametrize("source", ["raise KeyError('x')", "import os; os.kill(os.getpid(), 9)"])
def test_a_crash_is_not_reported_as_an_exit_status_too(
    home: Home, run_program: RunProgram, source: str
) -> None:
    run_program(source, command=VESTIGE_RUN)

    kinds = [found.kind for found in all_findings(home, "program.py")]

    assert kinds
    assert "exit/status" not in kinds


def test_the_runs_of_one_program_name_each_other(home: Home, run_program: RunProgram) -> None:
    """The program failed after its own run succeeded, so both are listed."""
    run_program(OWN_RUN, command=VESTIGE_RUN)

    short = {run.info.name: run.info.short_id for run in load(home)}
    program = vestige("overview", short["program.py"], "--home", home.root)
    own = vestige("overview", short["main"], "--home", home.root)

    assert f"same program: {short['main']} main (ok)" in program.stdout
    assert f"same program: {short['program.py']} program.py (error)" in own.stdout
    checked = vestige("check", short["main"], "--home", home.root).stdout
    assert (
        f"program.py, of the same program, failed: vestige check {short['program.py']}" in checked
    )
    assert "task:" not in own.stdout  # a function without arguments has no task
