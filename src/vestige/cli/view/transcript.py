"""`vestige transcript`: a run as messages and tool calls."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home
from vestige.limits import TRANSCRIPT_ITEMS, TRANSCRIPT_ITEMS_MAX


@click.command(
    "transcript",
    cls=Examples,
    examples="""
  vestige transcript                 the latest run, read like a chat
  vestige transcript r7              what was said, answered, called and given back
  vestige transcript r7 --after r7.s40    on from after a span
  vestige transcript r7 --json       the same, for a program
""",
    exits="0 shown, 2 no such run or place in it, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--after", metavar="PLACE", help="Go on here: a cursor of an answer, or a span.")
@click.option(
    "--limit",
    default=TRANSCRIPT_ITEMS,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, TRANSCRIPT_ITEMS_MAX),
    help="At most so many items.",
)
@answer_options
def transcript(
    id: str | None, after: str | None, limit: int, home: Home, as_json: bool, budget: int | None
) -> None:
    """Read a run like a chat: what was said to a model, its answers, its tools and what they gave.

    Of each request only what is new since the one before it. A tool call stands with its
    result; what happened inside a tool or a sub-agent is indented below it.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.transcript(wanted, after=after, limit=limit)
    print_answer(answer, as_json, budget)
