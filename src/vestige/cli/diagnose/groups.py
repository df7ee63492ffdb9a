"""`vestige groups`: failed runs grouped by cause."""

from __future__ import annotations

import click

from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "groups",
    cls=Examples,
    examples="""
  vestige groups                     failures of all runs, the most frequent first
  vestige groups --since 2d          failures of the last two days
  vestige groups 'name:triage'       failures of one program
  vestige groups --like r126         the runs that failed like this one
""",
    exits="0 ok, 2 run or data directory not found, 3 store unreadable",
)
@click.argument("filter", nargs=-1)
@click.option("--like", metavar="RUN", help="Only the group of this run.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only the last 2h, 7d, ...")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Skip N groups.")
@answer_options
def groups(
    filter: tuple[str, ...],
    like: str | None,
    since: float | None,
    after: int,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Group failed runs by cause.

    Runs belong together if the same check, tool, exception and place in the code are involved,
    and their error texts are equal apart from ids, numbers and paths. Each group shows how often
    and when it occurred, the commits of the program, its newest run, and what sets its runs apart
    from successful runs of the same task.
    """
    with open_debugger(home) as (debugger, _):
        answer = debugger.groups(" ".join(filter), like=like, since=since, after=after)
    print_answer(answer, as_json, budget)
