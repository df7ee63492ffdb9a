"""`vestige state`: state snapshots."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "state",
    cls=Examples,
    examples="""
  vestige state r7                   all snapshots, each with its changes
  vestige state 'r7#3'               one snapshot: its slices and their items
  vestige state 'r7#3' --against 1   changes since snapshot 1
  vestige state x.wink               the snapshots of a bundle
""",
    exits="0 ok, 2 run or snapshot not found, 3 store unreadable",
)
@click.argument("id", required=False)
@click.option(
    "--against",
    "--than",
    "than",
    type=click.IntRange(0),
    metavar="N",
    help="Compare with snapshot N.",
)
@click.option("--after", type=click.IntRange(0), metavar="N", help="Start after snapshot N.")
@answer_options
def state(
    id: str | None,
    than: int | None,
    after: int | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show state snapshots."""
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.state(found_id, than=than, after=after)
        print_answer(answer, as_json, budget)
