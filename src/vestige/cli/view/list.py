"""`vestige list`: runs, newest first or sorted."""

from __future__ import annotations

import sys

import click

from vestige.cli.manage.import_discovered_sessions import offer_import
from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.limits import LIST_MAX
from vestige.query.search.run_order import SORTS


@click.command(
    "list",
    cls=Examples,
    examples="""
  vestige list                        the latest runs, newest first
  vestige list --failed --since 2d    failed runs of the last two days
  vestige list 'is:failed tool:search cost>0.1'   runs that match a filter
  vestige list card refused           runs with both words near each other
  vestige list '"card refused"'       runs with this phrase
  vestige list --sort cost --limit 10 the most expensive runs
  vestige list --group conversation   the newest run of each conversation
  vestige list --all                  include runs without recorded activity
  vestige list --json | jq '.runs[0]' as JSON
""",
    exits="0 ok, 2 no data directory, 3 store unreadable",
)
@click.argument("filter", nargs=-1)
@click.option("--failed", is_flag=True, help="Only failed runs.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only the last 2h, 7d, ...")
@click.option("--name", metavar="TEXT", help="Only runs whose name contains this.")
@click.option("--conversation", metavar="ID", help="Only runs of this conversation.")
@click.option(
    "--like",
    metavar="TEXT",
    help="Only runs with this text in a name, attribute, log record or payload.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Include runs without any recorded activity."
)
@click.option("--cost", is_flag=True, help="Show cost (USD).")
@click.option(
    "--group", type=click.Choice(["conversation"]), help="Only the newest run of each conversation."
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="Sort by a column, largest first (default: newest first).",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--after", metavar="RUN", help="Start after this run.")
@click.option(
    "--limit",
    default=LIST_MAX,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Show at most N runs.",
)
@answer_options
def list_runs(
    filter: tuple[str, ...],
    failed: bool,
    since: float | None,
    name: str | None,
    conversation: str | None,
    like: str | None,
    everything: bool,
    cost: bool,
    group: str | None,
    sort: str | None,
    reverse: bool,
    after: str | None,
    limit: int,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """List runs: outcome, duration, and the main finding of each.

    The first column is a short id, for `vestige show` and other commands. The last column is the
    first finding of `vestige check`; long runs show ? until checked.

    FILTER consists of terms that must all match: is:failed (ok, running, error, pinned, ...),
    name: component: conversation: model: tool: type: check: note: with a text, has:finding,
    has:note, tag:culprit or #culprit (in a note), since:2d, before:1h, and cost> tokens> duration>
    spans> errors> logs> (also < and =) with a number.
    Prefix with - to exclude (after `--`, if it is the first term). Other words must all occur near
    each other in one text of the run; a quoted phrase as it is; r59 is the run with this id.
    """
    if not as_json:
        offer_import(home)
    with open_debugger(home) as (debugger, _):
        answer = debugger.list(
            " ".join(filter),
            group=group,
            failed=failed,
            since=since,
            name=name,
            conversation=conversation,
            like=like,
            everything=everything,
            limit=limit,
            after=after,
            cost=cost or sort == "cost",
            examine=True,
            sort=sort,
            reverse=reverse,
            totals=sys.stdout.isatty() and not as_json,
        )
    print_answer(answer, as_json, budget)
