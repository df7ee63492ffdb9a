"""`vestige why`: trace a span back to its cause."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "why",
    cls=Examples,
    examples="""
  vestige why                    of the latest run: from where its first finding sees the cause
  vestige why r7.s12             what led to this span, up to the first finding
  vestige why call_7 --json      the same chain, for a program
""",
    exits="0 shown, 2 no such span, or several, 3 unreadable store",
)
@click.argument("id", required=False)
@answer_options
def why(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Follow the causes of a span upward, by links and parents, to the first finding.

    Of a run, by default the latest, from the span that its first finding names as the cause.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.why(wanted)
    print_answer(answer, as_json, budget)
