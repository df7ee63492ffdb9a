"""`vestige files`: the files of a run."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "files",
    cls=Examples,
    examples="""
  vestige files r7                   the files of a run, at its end
  vestige files r7 --at 2.5          the files 2.5 seconds into the run
  vestige files x.wink               the files of a bundle
""",
    exits="0 ok, 2 run not found, 3 store unreadable",
)
@click.argument("id", required=False)
@click.option("--at", metavar="S", help="At this second of the run, or when a span started.")
@answer_options
def files(id: str | None, at: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """List the files of a run, with sizes and previews; `vestige body` shows a complete file."""
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.files(found_id, at=at)
    print_answer(answer, as_json, budget)
