"""`vestige files`: the files of a run."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "files",
    cls=Examples,
    examples="""
  vestige files r7                   the files that a run has, at its end
  vestige files r7 --at 2.5          as they were after two and a half seconds
  vestige files x.wink               the files of a bundle
""",
    exits="0 shown, 2 no such run, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--at", metavar="S", help="At this second of the run; or when a span began.")
@answer_options
def files(id: str | None, at: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """List the files of a run, with sizes and beginnings; `vestige body` shows one whole."""
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.files(wanted, at=at)
    print_answer(answer, as_json, budget)
