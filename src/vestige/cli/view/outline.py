"""`vestige outline`: the tree of a run, identical siblings merged."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "outline",
    cls=Examples,
    examples="""
  vestige outline r7                 its tree, equal siblings added up, the longest first
  vestige outline r7 --json          all spans and log lines as columns, for a program
""",
    exits="0 shown, 2 no such run or cursor, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--after", metavar="CURSOR", help="Only what is new or changed: `next` of an answer.")
@answer_options
def outline(
    id: str | None, after: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show the shape of a run: where its time and tokens went, however many spans it has.

    With --json the whole run as columns, a few megabytes for a hundred thousand spans; the
    answer's `next` gives later only what has changed.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.outline(wanted, after=after)
    print_answer(answer, as_json, budget)
