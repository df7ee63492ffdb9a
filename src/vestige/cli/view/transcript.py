"""`vestige transcript`: a run as messages and tool calls."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.limits import TRANSCRIPT_ITEMS, TRANSCRIPT_ITEMS_MAX


@click.command(
    "transcript",
    cls=Examples,
    examples="""
  vestige transcript                 the latest run, like a chat
  vestige transcript r7              its messages, tool calls and results
  vestige transcript r7 --step 12 --full    one step, no text folded
  vestige transcript r7 --agent search      the steps of one agent
  vestige transcript r7 --budget 12000      a long page
  vestige transcript r7 --json       as JSON
""",
    exits="0 ok, 2 run or position not found, 3 store unreadable",
)
@click.argument("id", required=False)
@click.option("--step", metavar="N[:M]", help="Only this step, or these steps.")
@click.option("--agent", metavar="NAME", help="Only the steps of this agent.")
@click.option("--full", is_flag=True, help="Fold no text.")
@click.option("--ids", is_flag=True, help="Show recorded span ids instead of short ones.")
@click.option("--after", metavar="PLACE", help="Continue from a cursor or span.")
@click.option(
    "--limit",
    default=TRANSCRIPT_ITEMS,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, TRANSCRIPT_ITEMS_MAX),
    help="Show at most N items.",
)
@answer_options
def transcript(
    id: str | None,
    step: str | None,
    agent: str | None,
    full: bool,
    ids: bool,
    after: str | None,
    limit: int,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show a run step by step: new messages, answers, actions and their results.

    A step is one model call. Every text is shown once: a history that is sent again is left
    out, and a repeated passage is a reference to its step. Steps of a sub-agent are indented.
    """
    is_first_page = not as_json and step is agent is after is None
    with open_debugger(home, id, glance=is_first_page) as (debugger, id_to_query):
        answer = debugger.transcript(
            id_to_query, after=after, limit=limit, step=step, agent=agent, full=full, ids=ids
        )
        # Rendering reads the prompt segments of steps, so the store must still be open.
        print_answer(answer, as_json, budget)
