"""`vestige overview`: summarize a run."""

from __future__ import annotations

import os

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.limits import OVERVIEW_ALL_MAX


@click.command(
    "overview",
    cls=Examples,
    examples="""
  vestige overview                   the latest run
  vestige overview r7                outcome, structure, findings, next commands
  vestige overview call_7            the run of this tool call
""",
    exits="0 ok, 2 run not found, 3 store unreadable",
)
@click.argument("id", required=False)
@click.option("--ids", is_flag=True, help="Show recorded span ids instead of short ones.")
@answer_options
def overview(id: str | None, ids: bool, home: Home, as_json: bool, budget: int | None) -> None:
    """Summarize a run: outcome, structure, findings, next commands.

    ID is a run id or its first characters, a short id, the id of a span, conversation or tool
    call, a pasted log line, or a path. Default: the latest run.
    """
    glance = not as_json and id is not None and _is_very_long(id)
    with open_debugger(home, id, glance=glance) as (debugger, found_id):
        answer = debugger.overview(found_id, ids=ids)
    print_answer(answer, as_json, budget)


def _is_very_long(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.getsize(path) > OVERVIEW_ALL_MAX
    except (OSError, ValueError):  # an id, or a pasted log line
        return False
