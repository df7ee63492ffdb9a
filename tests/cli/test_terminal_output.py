"""Answers on a real terminal: its width, its pager, and no token budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import vestige
from support.terminal import run_in_terminal
from vestige.home import Home
from vestige.query.formatting import width
from vestige.recorder import Recorder

RUNS = 60
PLAIN = {"NO_COLOR": "1"}


@pytest.fixture
def many_runs(home: Home) -> Home:
    with Recorder(home) as recorder:
        for number in range(RUNS):
            with recorder.run(f"a rather long name of an agent, 部署 {number}") as run:
                step = run.child(f"step {'x' * 200}", "llm", {"input_tokens": 120_000})
                step.end(ValueError("refused"))
    return home


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_list_fits_the_width_of_the_terminal(many_runs: Home, columns: int) -> None:
    lines = run_in_terminal(["list", "--limit", "5"], PLAIN, columns=columns).splitlines()

    head, *rows = lines[:6]
    assert max(map(width, [head, *rows])) <= columns
    assert [row.split()[0] for row in rows] == ["r61", "r60", "r59", "r58", "r57"]
    assert ("SPANS" in head) == (columns > 80)
    assert all("a rather long" in row for row in rows)


def test_a_pipe_gets_the_whole_width(many_runs: Home) -> None:
    rows = vestige("list").stdout.splitlines()

    assert any("部署 59" in row and "SPANS" in rows[0] for row in rows)


@pytest.mark.parametrize("columns", [60, 100])
def test_the_steps_of_a_run_fit_the_width_of_the_terminal(many_runs: Home, columns: int) -> None:
    lines = run_in_terminal(["show", "r61"], PLAIN, columns=columns).splitlines()

    (step,) = [line for line in lines if "step xxx" in line]
    assert width(step) == columns and step.endswith("…")


@pytest.mark.slow
def test_an_explicit_limit_overrules_the_token_budget(many_runs: Home) -> None:
    piped = vestige("list", "--limit", "50").stdout.splitlines()
    default = vestige("list").stdout
    budgeted = vestige("list", "--limit", "50", "--budget", "200").stdout

    assert sum(line.startswith("r") for line in piped) == 50
    assert "--limit" not in default.splitlines()[-1]  # The next page has the budget, too.
    assert "not shown" in budgeted


def test_a_terminal_gets_every_run_of_the_limit(many_runs: Home) -> None:
    lines = run_in_terminal(["list", "--limit", "1000"], PLAIN).splitlines()

    assert sum(line.startswith("r") for line in lines) == RUNS


def test_a_long_answer_goes_through_the_pager(many_runs: Home, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\nexec cat\n")
    pager.chmod(0o755)
    env = {**PLAIN, "PAGER": str(pager)}

    long = run_in_terminal(["list", "--limit", "40"], env, lines=24)
    short = run_in_terminal(["list", "--limit", "4"], env, lines=24)

    assert long.startswith("PAGED\n") and long.count("a rather long") == 40
    assert "PAGED" not in short and short.count("a rather long") == 4


@pytest.mark.slow
def test_runs_are_sorted_by_any_column(many_runs: Home) -> None:
    by_name = vestige("list", "--sort", "name", "--limit", "3").stdout
    longest = vestige("list", "--sort", "duration", "--reverse", "--limit", "2").stdout
    by_cost = vestige("list", "--sort", "cost", "--limit", "50").stdout.splitlines()

    assert [row.split()[0] for row in by_name.splitlines()[1:4]] == ["r2", "r3", "r12"]
    assert len([row for row in longest.splitlines() if row.startswith("r")]) == 2
    assert sum(row.startswith("r") for row in by_cost) == 50


def test_only_fields_of_a_line_are_coloured(many_runs: Home) -> None:
    rows = run_in_terminal(["list", "--limit", "2"], columns=160).splitlines()

    (row,) = [row for row in rows if "r61" in row]
    assert row.startswith("\033[2mr61\033[0m")
    assert "\033[32mok\033[0m" in row
    assert row.endswith("refused") and row.count("\033[") == 4


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("command", ["check", "overview", "why", "span", "show", "stats", "list"])
def test_no_line_of_any_answer_is_wider_than_the_terminal(
    many_runs: Home, command: str, columns: int
) -> None:
    target = [] if command in ("stats", "list") else ["r61"]
    lines = run_in_terminal([command, *target], PLAIN, columns=columns).splitlines()

    assert len(lines) > 1
    assert max(map(width, lines)) <= columns


def test_progress_is_shown_on_a_terminal_and_not_in_a_pipe(many_runs: Home) -> None:
    ids = [f"r{number}" for number in range(2, 40)]

    shown = run_in_terminal(["check", *ids], PLAIN)
    piped = vestige("check", *ids)

    assert "Checking ░" in shown and "/38" in shown
    assert "Checking" not in piped.output
    assert piped.stdout.count("[") >= 38


def test_a_broken_line_keeps_the_indent_and_the_bar_of_quoted_text() -> None:
    from vestige.cli.terminal_text import wrap_line

    assert wrap_line("  | one two three four five six seven", 26) == [
        "  | one two three four",
        "  | five six seven",
    ]
    assert wrap_line("[error] one two three four five", 28) == [
        "[error] one two three four",
        "    five",
    ]
    assert wrap_line("x" * 90, 80) == ["x" * 80, "    " + "x" * 10]
    assert wrap_line("部署" * 30, 80) == ["部署" * 20, "    " + "部署" * 10]
