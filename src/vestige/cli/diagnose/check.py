"""`vestige check`: the findings of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "check",
    cls=Examples,
    examples="""
  vestige check                  what is wrong with the latest run
  vestige check r7               findings, cause first, each with its proof
  vestige check r7 --verbose     also the names of the checks that passed
  vestige check r7 --json        all of them, for a program
  vestige check runs/3d1957bd-.. a run of AgentDbg: also the rules of its format
""",
    exits="0 no finding of severity error, 1 there is one, 2 no such run, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option(
    "--after",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Pass over the first N findings.",
)
@click.option("--verbose", "-v", is_flag=True, help="Also the names of the checks that passed.")
@answer_options
def check(
    id: str | None, after: int, verbose: bool, home: Home, as_json: bool, budget: int | None
) -> None:
    """Look for known faults in a run, and say what was ruled out.

    The earliest finding of each causal chain comes first. `measured` is a fact of the
    record, `hypothesis` a reading of facts.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.check(wanted, after=after, verbose=verbose)
    broken = _format_problems(id, as_json)
    print_answer(answer, as_json, budget)
    if broken:
        sys.exit(1)


def _format_problems(id: str | None, as_json: bool) -> bool:
    """Of a run of another tool: what its own format forbids, before what its story tells."""
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
    click.echo(f"{name}: {len(problems)} problems with the format\n", err=as_json)
    return any(problem.severity == "error" for problem in problems)


PROBLEMS_SHOWN = 50
"""Of a format; a damaged file may have as many as it has lines."""
