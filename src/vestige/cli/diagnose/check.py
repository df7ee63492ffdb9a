"""`vestige check`: the findings of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.options import Examples, Home, policy_option
from vestige.cli.print_answer import (
    answer_options,
    open_debugger,
    open_debuggers,
    print_answer,
    print_answers,
    print_json,
)
from vestige.cli.progress import ProgressBar

if TYPE_CHECKING:
    from vestige.query.policy.policy import Policy


@click.command(
    "check",
    cls=Examples,
    examples="""
  vestige check                  findings of the latest run
  vestige check r7               findings, cause first, each with its evidence
  vestige check r7 r8 r9         findings of several runs
  vestige check r7 --verbose     also evidence, confidence and passed checks
  vestige check r7 --json        as JSON
  vestige check r7 --policy policy.toml   also the rules of a policy
  vestige check runs/3d1957bd-.. an AgentDbg run, with the rules of its format
""",
    exits="0 no errors found, 1 errors found, 2 run not found, 3 store unreadable",
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--after",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Skip the first N findings.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Also show evidence, confidence and passed checks."
)
@click.option("--ids", "recorded", is_flag=True, help="Show recorded span ids, not short ones.")
@policy_option
@answer_options
def check(
    ids: tuple[str, ...],
    after: int,
    verbose: bool,
    recorded: bool,
    policy: Policy | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Diagnose a run, or several.

    Prints findings, the earliest of each causal chain first, and the number of checks that
    passed. A `measured` finding is a recorded fact; a `hypothesis` is an interpretation.
    """
    options: dict[str, Any] = {
        "after": after,
        "verbose": verbose,
        "policy": policy,
        "ids": recorded,
    }
    if len(ids) > 1:
        _check_many(ids, options, home, as_json, budget)
        return
    run = ids[0] if ids else None
    with open_debugger(home, run) as (debugger, found_id):
        answer = debugger.check(found_id, **options)
    broken = _format_problems(run, as_json)
    print_answer(answer, as_json, budget)
    if broken:
        sys.exit(1)


def _check_many(
    ids: tuple[str, ...],
    options: dict[str, Any],
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Print the findings of each run. As JSON, one line for each."""
    answers = []
    with (
        open_debuggers(home, *ids) as (debugger, found_ids),
        ProgressBar("Checking", len(ids)) as bar,
    ):
        for run, found_id in zip(ids, found_ids, strict=True):
            bar.update(run)
            answers.append(debugger.check(found_id, **options))
            bar.advance()
    for answer in answers:
        if as_json:
            print_json(answer.data(), None)
    if not as_json:
        print_answers(answers, budget)
    if any(answer.exit_code for answer in answers):
        sys.exit(1)


def _format_problems(id: str | None, as_json: bool) -> bool:
    """Print violations of the format of another tool's run. Return whether there are errors."""
    from vestige.transfer import check_source, is_source

    if id is None or not is_source(id):
        return False
    checked = check_source(Path(id))
    if checked is None:
        return False
    name, problems = checked
    for problem in problems[:PROBLEMS_SHOWN]:
        click.echo(f"{problem.severity} {problem.rule}: {problem}", err=as_json)
    if len(problems) > PROBLEMS_SHOWN:
        click.echo(f"… {len(problems) - PROBLEMS_SHOWN} more problems", err=as_json)
    from vestige.query.formatting import pluralize

    click.echo(f"{name}: {pluralize(len(problems), 'format problem')}\n", err=as_json)
    return any(problem.severity == "error" for problem in problems)


PROBLEMS_SHOWN = 50
"""Problems shown per file: a damaged one may have one on every line."""
