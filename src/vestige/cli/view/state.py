"""`vestige state`: state snapshots."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "state",
    cls=Examples,
    examples="""
  vestige state r7                   every snapshot, and what changed since the one before
  vestige state 'r7#3'               one snapshot: its slices and their items
  vestige state 'r7#3' --than 1      how it differs from snapshot 1
  vestige state x.wink               the snapshots of a bundle
""",
    exits="0 shown, 2 no such run or snapshot, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--than", type=click.IntRange(0), metavar="N", help="Against snapshot N.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Only those after snapshot N.")
@answer_options
def state(
    id: str | None,
    than: int | None,
    after: int | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show what a session or an agent held, snapshot by snapshot."""
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.state(wanted, than=than, after=after)
        print_answer(answer, as_json, budget)
