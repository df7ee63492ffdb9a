"""`vestige overview`: summarize a run."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "overview",
    cls=Examples,
    examples="""
  vestige overview                   the latest run in one look
  vestige overview r7                outcome, shape, findings, what to ask next
  vestige overview call_7            the run in which this tool call happened
""",
    exits="0 shown, 2 no such run, 3 unreadable store",
)
@click.argument("id", required=False)
@answer_options
def overview(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Show a run in one look: how it ended, its shape, what is wrong, what to ask next.

    ID is anything that leads to a run: its id or the start of it, a short id, a span, a
    conversation, a tool call, a pasted line, a path. Without ID, the latest.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.overview(wanted)
    print_answer(answer, as_json, budget)
