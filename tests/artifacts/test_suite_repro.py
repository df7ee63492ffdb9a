"""Replay: the command of a bundle, and running it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from support.pytest_suites import (
    environment_for,
    make_project,
    only_bundle,
    read_json,
    run_pytest,
    vestige,
)
from vestige.artifacts import Replay
from vestige.artifacts.replay_command import COMMAND_MAX, find_case, render_command, selected
from vestige.errors import NotFoundError, UsageError
from vestige.pytest_plugin.rerun_command import kept_options

PYTEST = Replay(
    argv=["python", "-m", "pytest", "-q"], cwd="/work/my shop", tests=["tests"], by_case=True
)


def test_the_command_is_one_line_that_a_shell_takes_apart_again() -> None:
    """Folder, variables, words and names survive quoting."""
    command = render_command(
        PYTEST, {"TZ": "UTC", "X": "a b"}, ["t.py::test_x[a b]", "t.py::test_y"]
    )

    assert "\n" not in command
    assert shlex.split(command) == [
        "cd",
        "/work/my shop",
        "&&",
        "env",
        "TZ=UTC",
        "X=a b",
        "python",
        "-m",
        "pytest",
        "-q",
        "t.py::test_x[a b]",
        "t.py::test_y",
    ]


@pytest.mark.parametrize(
    ("cases", "chosen"),
    [
        ([], ["tests"]),
        (["a.py::t[1]", "b.py::t", "a.py::t[1]"], ["a.py::t[1]", "b.py::t"]),
        (["a.py::t[sk-…redacted…99]"], ["a.py::t"]),
        (["a.py::t[one\ntwo]"], ["a.py::t"]),
        ([f"a.py::t[{n:09}]" for n in range(COMMAND_MAX // 10)], ["a.py"]),
        ([f"{n:09}.py::t" for n in range(COMMAND_MAX // 10)], ["tests"]),
    ],
)
def test_what_failed_is_selected_as_well_as_it_can_be_said(
    cases: list[str], chosen: list[str]
) -> None:
    """Masked and untypable names select by what is before; too many, by file; far too many, all."""
    assert selected(PYTEST, cases) == chosen


def test_options_that_would_change_a_replay_are_left_out() -> None:
    """Selection, early stops, workers, reports; what else was given stays."""
    options = [
        "-n",
        "4",
        "-n2",
        "-x",
        "--lf",
        "--maxfail=1",
        "--junitxml=o.xml",
        "--vestige-bundle",
        "art",
        "-k",
        "tests",
        "-p",
        "no:randomly",
        "tests",
        "-vv",
        "--dist",
        "load",
    ]

    assert kept_options(options, ["tests"]) == ["-k", "tests", "-p", "no:randomly", "-vv"]


def test_a_case_is_found_by_what_only_it_has() -> None:
    """A guess between two is none."""
    cases = ["a.py::test_card", "a.py::test_cash", "a.py::test_cash_twice"]

    assert find_case(cases, "card") == "a.py::test_card"
    assert find_case(cases, "a.py::test_cash") == "a.py::test_cash"
    with pytest.raises(UsageError, match="2 cases"):
        find_case(cases, "cash")
    with pytest.raises(NotFoundError, match="no such case"):
        find_case(cases, "cheque")


FAILING = """
    import os
    ORDER = os.open("order.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def report(name): os.write(ORDER, (name + os.environ.get("TZ", "?") + " ").encode())
    def test_c(): report("c"); assert 0
    def test_ok(): report("ok")
    def test_b(): report("b"); assert not os.path.exists("broken")
    def test_a(): report("a"); assert 0
"""


@pytest.mark.slow
def test_the_failures_run_again_in_their_order_with_their_environment(tmp_path: Path) -> None:
    """And nothing else; the status is pytest's; one case alone; repro.txt does the same in a
    shell.
    """
    project = make_project(tmp_path / "shop", FAILING)
    (project / "broken").touch()
    run_pytest(project, "--vestige-bundle", "art", "-x", "--maxfail=9", env={"TZ": "Asia/Tokyo"})
    bundle = only_bundle(project / "art")
    (project / "order.txt").unlink()
    all_of_them = vestige(tmp_path, "repro", str(bundle))
    first = (project / "order.txt").read_text()
    (project / "broken").unlink()
    mended = vestige(tmp_path, "repro", str(bundle), "--case", "test_b")
    wrong = vestige(tmp_path, "repro", str(bundle), "--case", "test_")
    (project / "order.txt").unlink()
    shell = subprocess.run(
        (bundle / "repro.txt").read_text(),
        shell=True,
        cwd="/",
        env=environment_for(project),
        capture_output=True,
    )

    assert all_of_them.returncode == 1
    assert first == "cAsia/Tokyo bAsia/Tokyo aAsia/Tokyo "
    assert mended.returncode == 0, mended.stderr
    assert wrong.returncode == 2
    assert shell.returncode == 1
    assert (project / "order.txt").read_text() == first
    assert read_json(bundle / "repro.json")["command"] + "\n" == (bundle / "repro.txt").read_text()


@pytest.mark.slow
def test_a_replay_of_other_code_warns(tmp_path: Path) -> None:
    """Another commit, uncommitted changes then or now; the same code says nothing."""
    project = make_project(tmp_path / "shop", "def test_ok(): pass")
    _git(project, "init", "-q")
    (project / ".gitignore").write_text("__pycache__\n")
    _git(project, "add", "-A")
    _git(project, "commit", "-qm", "one")
    run_pytest(project, "--vestige-bundle", "art")
    bundle = only_bundle(project / "art")
    same = vestige(tmp_path, "repro", str(bundle))
    (project / "new.py").write_text("")
    changed = vestige(tmp_path, "repro", str(bundle), "--print")
    _git(project, "add", "new.py")
    _git(project, "commit", "-qm", "two")
    other = vestige(tmp_path, "repro", str(bundle), "--print")

    assert read_json(bundle / "meta.json")["git"]["dirty"] is False
    assert "warning" not in same.stderr
    assert "uncommitted changes here" in changed.stderr
    assert "the suite ran at commit" in other.stderr
    assert other.returncode == 0


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_what_is_no_bundle_is_said_in_one_line(tmp_path: Path) -> None:
    """No traceback, whatever is there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/repro.json").write_text('{"command": 7')
    found = {name: vestige(tmp_path, "repro", name) for name in ("nowhere", "empty", "bad")}

    assert {name: done.returncode for name, done in found.items()} == {
        "nowhere": 2,
        "empty": 2,
        "bad": 3,
    }
    for done in found.values():
        assert done.stderr.count("\n") == 1


def test_options_that_are_written_together_lose_what_stops_early() -> None:
    """`-xvs` would end a replay at its first failure; `-rx` and `-kx` are something else."""
    options = ["-xvs", "-xf", "-nauto", "-n2", "-rx", "-kx", "-q"]

    assert kept_options(options, []) == ["-vs", "-rx", "-kx", "-q"]
