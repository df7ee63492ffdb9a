"""`vestige list`: runs, newest first."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import DURATION, Examples, Home
from vestige.limits import LIST_MAX


@click.command(
    "list",
    cls=Examples,
    examples="""
  vestige list                        the latest runs, newest first
  vestige list --failed --since 2d    what went wrong lately
  vestige list 'is:failed tool:search cost>0.1'   by a filter, quoted for the shell
  vestige list --like "card refused"  runs that say this somewhere
  vestige list --group conversation   the newest run of each conversation
  vestige list --all                  also the runs of mere processes
  vestige list --json | jq '.runs[0]' the same, for a program
""",
    exits="0 shown (also when there is nothing), 2 no such home, 3 unreadable store",
)
@click.argument("filter", nargs=-1)
@click.option("--failed", is_flag=True, help="Only runs that ended badly.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only runs younger than this: 2h, 7d.")
@click.option("--name", metavar="TEXT", help="Only runs whose name contains this.")
@click.option("--conversation", metavar="ID", help="Only runs of this conversation.")
@click.option(
    "--like",
    metavar="TEXT",
    help="Only runs with this in a name, an attribute, a log line or a body.",
)
@click.option("--all", "everything", is_flag=True, help="Also the runs of mere processes.")
@click.option("--cost", is_flag=True, help="Also what their model calls cost, in dollars.")
@click.option(
    "--group", type=click.Choice(["conversation"]), help="Only the newest run of each conversation."
)
@click.option("--after", metavar="RUN", help="Only runs that stand after this one in the list.")
@click.option(
    "--limit",
    default=LIST_MAX,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="At most so many runs.",
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
    after: str | None,
    limit: int,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """List runs: what ran, when, how it ended, and what is wrong with it.

    The first column is a short id: give it to `vestige overview` or `vestige show`.
    The last one is the finding that `vestige check` leads with. Small runs are examined by the
    list itself; of a longer one it is a question mark until `vestige check` has looked.

    FILTER is made of terms that must all hold: is:failed (ok, running, error, pinned, ...),
    name: component: conversation: model: tool: type: check: and a text, has:finding, since:2d,
    before:1h, and cost> tokens> duration> spans> errors> logs> (also < and =) and a number. A
    dash before a term turns it round (behind `--`, if it is the first); anything else is text
    that a run must hold somewhere.
    """
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
            cost=cost,
            examine=True,
        )
    print_answer(answer, as_json, budget)
