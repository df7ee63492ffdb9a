"""`vestige stats`, `trends`: statistics over all runs."""

from __future__ import annotations

import click

from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "stats",
    cls=Examples,
    examples="""
  vestige stats                        by name: counts, durations, tokens, error rates
  vestige stats --by model --since 7d  usage of each model this week
  vestige stats --by tool              prompt cost of each tool vs. usage
  vestige stats --trends --since 7d    runs, failures, tokens and cost over time
""",
    exits="0 ok, 2 bad argument or no data directory, 3 store unreadable",
)
@click.option(
    "--by",
    metavar="FIELD",
    help="Group by name (default), model, tool, component, type or day.",
)
@click.option(
    "--since", type=DURATION, metavar="AGE", help="Only the last 12h, 7d, ... (whole days)."
)
@click.option("--trends", "over_time", is_flag=True, help="Show trends over time, by day or hour.")
@answer_options
def stats(
    by: str | None,
    since: float | None,
    over_time: bool,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Aggregate statistics: counts, durations, tokens, failures."""
    with open_debugger(home) as (debugger, _):
        if over_time:
            answer = debugger.trends(since=since, by=by)
        else:
            answer = debugger.stats(by=by or "name", since=since)
    print_answer(answer, as_json, budget)


@click.command(
    "trends",
    cls=Examples,
    examples="""
  vestige trends                     the last 30 days: runs, failures, durations, tokens, cost
  vestige trends --since 1d          by hour
""",
    exits="0 ok, 2 bad argument or no data directory, 3 store unreadable",
)
@click.option("--since", type=DURATION, metavar="AGE", help="Only the last 12h, 30d, ...")
@click.option("--by", metavar="STEP", help="day or hour (default: hour for up to three days).")
@answer_options
def trends(
    since: float | None, by: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show trends over time: runs, failures, durations, tokens and cost by day or hour."""
    with open_debugger(home) as (debugger, _):
        answer = debugger.trends(since=since, by=by)
    print_answer(answer, as_json, budget)
