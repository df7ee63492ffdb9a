"""`vestige transcript`, `outline`, `segments`, `state`, `files`, `trends`: what the viewer shows, in a terminal."""

from __future__ import annotations

import click

from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.view.read import answer_options, open_debugger, print_answer
from vestige.limits import TRANSCRIPT_ITEMS, TRANSCRIPT_ITEMS_MAX


@click.command(
    "transcript",
    cls=Examples,
    examples="""
  vestige transcript                 the latest run, read like a chat
  vestige transcript r7              what was said, answered, called and given back
  vestige transcript r7 --after r7.s40    on from after a span
  vestige transcript r7 --json       the same, for a program
""",
    exits="0 shown, 2 no such run or place in it, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--after", metavar="PLACE", help="Go on here: a cursor of an answer, or a span.")
@click.option(
    "--limit",
    default=TRANSCRIPT_ITEMS,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, TRANSCRIPT_ITEMS_MAX),
    help="At most so many items.",
)
@answer_options
def transcript(
    id: str | None, after: str | None, limit: int, home: Home, as_json: bool, budget: int | None
) -> None:
    """Read a run like a chat: what was said to a model, its answers, its tools and what they gave.

    Of each request only what is new since the one before it. A tool call stands with its
    result; what happened inside a tool or a sub-agent is indented below it.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.transcript(wanted, after=after, limit=limit)
    print_answer(answer, as_json, budget)


@click.command(
    "outline",
    cls=Examples,
    examples="""
  vestige outline r7                 its tree, equal siblings added up, the longest first
  vestige outline r7 --json          all spans and log lines as columns, for a program
""",
    exits="0 shown, 2 no such run or cursor, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--after", metavar="CURSOR", help="Only what is new or changed: `next` of an answer.")
@answer_options
def outline(
    id: str | None, after: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show the shape of a run: where its time and tokens went, however many spans it has.

    With --json the whole run as columns, a few megabytes for a hundred thousand spans; the
    answer's `next` gives later only what has changed.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.outline(wanted, after=after)
    print_answer(answer, as_json, budget)


@click.command(
    "segments",
    cls=Examples,
    examples="""
  vestige segments r7.s12            who put what into this call's prompt, the largest first
  vestige segments r7.s12 --json     each part with its place in the request
""",
    exits="0 shown, 2 no such span, or no prompt of a known form, 3 unreadable store",
)
@click.argument("id")
@answer_options
def segments(id: str, home: Home, as_json: bool, budget: int | None) -> None:
    """Show what a prompt is made of: by contributor, with sizes and shares.

    As the program said (`span.segments`); else as the request's own shape tells: its tools,
    system prompt and messages.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.segments(wanted or "")
    print_answer(answer, as_json, budget)


@click.command(
    "state",
    cls=Examples,
    examples="""
  vestige state r7                   every snapshot, and what changed since the one before
  vestige state 'r7#3'               one snapshot: its slices and their items
  vestige state 'r7#3' --than 1      how it differs from snapshot 1
  vestige state x.wink               the snapshots of a bundle
""",
    exits="0 shown, 2 no such run or snapshot, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option("--than", type=click.IntRange(0), metavar="N", help="Against snapshot N.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Only those after snapshot N.")
@answer_options
def state(
    id: str | None,
    than: int | None,
    after: int | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show what a session or an agent held, snapshot by snapshot."""
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.state(wanted, than=than, after=after)
        print_answer(answer, as_json, budget)


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


@click.command(
    "trends",
    cls=Examples,
    examples="""
  vestige trends                     the last 30 days: runs, failures, durations, tokens, cost
  vestige trends --since 1d          by the hour
""",
    exits="0 shown, 2 bad argument or no such home, 3 unreadable store",
)
@click.option("--since", type=DURATION, metavar="AGE", help="Only this young: 12h, 30d.")
@click.option("--by", metavar="STEP", help="day or hour; up to three days by the hour.")
@answer_options
def trends(
    since: float | None, by: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show how it went over time: runs, failures, durations, tokens and cost by day or hour."""
    with open_debugger(home) as (debugger, _):
        answer = debugger.trends(since=since, by=by)
    print_answer(answer, as_json, budget)
