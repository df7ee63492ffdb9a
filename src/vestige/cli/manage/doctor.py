"""`vestige doctor`: check the data directory."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "doctor",
    cls=Examples,
    examples="""
  vestige doctor                where runs are stored, and whether any data is missing
  vestige doctor --json         as JSON
""",
    exits="0 ok, 1 data is missing or unhealthy, 2 no data directory, 3 store unreadable",
)
@answer_options
def doctor(home: Home, as_json: bool, budget: int | None) -> None:
    """Check the data directory."""
    with open_debugger(home) as (debugger, _):
        answer = debugger.doctor()
    print_answer(answer, as_json, budget)
