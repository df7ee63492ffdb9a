"""`vestige why`: trace a span back to its cause."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "why",
    cls=Examples,
    examples="""
  vestige why                    from the first finding of the latest run
  vestige why r7.s12             the causes of this span
  vestige why call_7 --json      as JSON
""",
    exits="0 ok, 2 span not found or ambiguous, 3 store unreadable",
)
@click.argument("id", required=False)
@answer_options
def why(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Trace a span back to its cause.

    Follows parents and links to the first finding. For a run (default: the latest), it starts at
    the span of the first finding.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.why(found_id)
    print_answer(answer, as_json, budget)
