"""`vestige outline`: the tree of a run, identical siblings merged."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "outline",
    cls=Examples,
    examples="""
  vestige outline r7                 its tree, identical siblings merged, longest first
  vestige outline r7 --json          all spans and log records as columns, in JSON
""",
    exits="0 ok, 2 run or cursor not found, 3 store unreadable",
)
@click.argument("id", required=False)
@click.option(
    "--after", metavar="CURSOR", help="Only changes since the `next` of an earlier answer."
)
@answer_options
def outline(
    id: str | None, after: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show the tree of a run with identical siblings merged: where time and tokens went.

    With --json, the complete run as columns: a few megabytes for a hundred thousand spans. Pass
    the `next` of that answer to --after to get only later changes.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.outline(found_id, after=after)
    print_answer(answer, as_json, budget)
