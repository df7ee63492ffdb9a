"""`vestige run` on a terminal ends with one line: which run, how it went, what to type next."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from vestige.collector.loop import hold
from vestige.home import Home


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """The exit code, and what came to a terminal that is stderr."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vestige", "run", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=30,
        )
        os.write(theirs, b"END")
        output = b""
        while not output.endswith(b"END"):
            output += os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, output.decode().removesuffix("END").replace("\r\n", "\n")


GOOD = """
import vestige
with vestige.Recorder().run("triage") as run:
    run.span("chat", type="llm").end(attributes={"input_tokens": 1000, "output_tokens": 200})
"""

BAD = """
import vestige
recorder = vestige.Recorder()
with recorder.run("first"):
    pass
recorder.run("second").end(ValueError("no"))
raise SystemExit(3)
"""


def test_a_good_end_names_the_programs_own_run_and_show(home: Home) -> None:
    """The short id, the name, the outcome, the time, the tokens, the next command; on one line."""
    code, output = on_a_terminal("--", sys.executable, "-c", GOOD)

    assert code == 0
    assert output.count("\n") == 1
    assert output.startswith("vestige: r")
    assert " triage: ok after " in output
    assert ", 1.2k tokens. Next: vestige show r" in output


def test_a_bad_end_names_the_run_that_failed_and_why(home: Home) -> None:
    """Of several runs the first that failed; the exit code stays the command's."""
    code, output = on_a_terminal("--", sys.executable, "-c", BAD)
    number = output.split()[1]
    why = subprocess.run(
        [sys.executable, "-m", "vestige", *output.split("Next: vestige ")[1].split()],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert code == 3
    assert f"{number} second: error after " in output
    assert output.endswith(f" Next: vestige why {number}\n")
    assert why.returncode == 0 and number in why.stdout


def test_a_program_that_is_no_python_is_told_by_its_own_run(home: Home) -> None:
    """And another home is named in the next command, which works unchanged."""
    elsewhere = str(home.root.parent / "other home")
    code, output = on_a_terminal("--home", elsewhere, "--name", "job", "--", "sh", "-c", "exit 4")

    assert code == 4
    # Its number depends on which process of the command is stored first.
    found = re.match(r"vestige: (r[12]) job: error after ", output)
    assert found is not None
    assert output.endswith(f"Next: vestige why {found[1]} --home '{elsewhere}'\n")


@pytest.mark.parametrize("quiet", [["--quiet"], ["-q"]])
def test_quiet_says_nothing(home: Home, quiet: list[str]) -> None:
    """Also on a terminal."""
    assert on_a_terminal(*quiet, "--", "true") == (0, "")


def test_a_stderr_that_is_no_terminal_is_the_commands_alone(home: Home) -> None:
    """A program may parse it."""
    done = subprocess.run(
        [sys.executable, "-m", "vestige", "run", "--", "sh", "-c", "echo x >&2"],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.stderr == "x\n"


def test_without_an_end_in_the_store_the_id_and_the_command_are_said(home: Home) -> None:
    """Another collector of this home is busy: the command does not wait for it."""
    with hold(home) as collector:
        assert collector is not None

        code, output = on_a_terminal("--", "false")

    assert code == 1
    assert output.startswith("vestige: recorded. Next: vestige why ")
    assert len(output.split()[-1]) >= 16


def test_a_store_that_cannot_be_read_changes_no_exit_code(home: Home) -> None:
    """The command was fine: what is wrong with the store is said by who reads it."""
    home.make()
    home.store.write_bytes(b"no database at all, " * 100)
    code, output = on_a_terminal("--", "true")

    assert code == 0
    assert "Traceback" not in output


def test_a_command_whose_inside_was_not_recorded_says_so(home: Home) -> None:
    """A Python that Vestige is not installed for looks like a good run of nothing otherwise."""
    code, output = on_a_terminal("--", sys.executable, "-I", "-S", "-c", "pass")
    number = output.split()[1]
    check = subprocess.run(
        [sys.executable, "-m", "vestige", "check", number],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert code == 0
    assert ", nothing inside was recorded (not Python, or Python without Vestige). Next: " in output
    assert "[hint] health/unrecorded" in check.stdout
