"""`vestige list`, `show`, `overview`, `span`, `body`: what there is, from far to near.

Every command opens what it is asked about (`asked`), calls one verb and prints its answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from vestige.cli.options import DURATION, Examples, F, Home, home_option, json_option
from vestige.limits import LIST_MAX, SHOW_LINES_MAX

if TYPE_CHECKING:
    from vestige.query.answer import Answer
    from vestige.query.debugger import Debugger
    from vestige.query.views.body_view import Which
    from vestige.store.sqlite.sqlite_store import SqliteStore

STYLES: dict[str, dict[str, object]] = {
    "ok": {},
    "error": {"fg": "red"},
    "open": {"fg": "yellow"},
    "warn": {"fg": "yellow"},
    "log": {"dim": True},
    "stamp": {"fg": "red", "bold": True},
    "running": {"fg": "cyan"},
    "interrupted": {"fg": "red", "bold": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
}


@contextmanager
def opened(home: Home, *, readonly: bool = True) -> Iterator[SqliteStore]:
    """The store of a home, brought up to its journals; questions open it read-only."""
    from vestige.collector.loop import catch_up
    from vestige.errors import NotFoundError
    from vestige.store.sqlite.sqlite_store import SqliteStore

    if not home.root.is_dir():
        raise NotFoundError(
            f"{home.root}: no such home. Record something first: `vestige run -- COMMAND`."
        )
    catch_up(home)
    with SqliteStore.open(home.store, readonly=readonly) as store:
        yield store


@contextmanager
def open_debugger(
    home: Home, id: str | None = None, *, glance: bool = False
) -> Iterator[tuple[Debugger, str | None]]:
    """The verbs over a home, or over the path that was given in place of an id.

    `glance`: the beginning of a long run will do.
    """
    with open_debuggers(home, id, glance=glance) as (debugger, (wanted,)):
        yield debugger, wanted


@contextmanager
def open_debuggers(
    home: Home, *ids: str | None, glance: bool = False
) -> Iterator[tuple[Debugger, list[str | None]]]:
    """As `asked`, of several at once."""
    from vestige.transfer import open_ids

    with open_ids(home, *ids, glance=glance) as (debugger, wanted):
        if debugger.notice:  # beside the answer, not in it
            click.echo(f"vestige: {debugger.notice}", err=True)
        yield debugger, wanted


def print_answer(answer: Answer, as_json: bool, budget: int | None) -> None:
    """As text or as JSON; bad news is the exit code."""
    if as_json:
        print_json(answer.data(), None if answer.dense else 2)
    else:
        from vestige.query.budget import within

        styled = getattr(answer, "styled", None)
        if styled is None:
            click.echo(answer.text(budget))
        else:
            for text, mood in styled(within(budget, answer.budget)):
                click.echo(styled_line(text, mood))
    if answer.exit_code:
        sys.exit(answer.exit_code)


def styled_line(text: str, mood: str) -> str:
    from vestige.record.redaction.output_redaction import redact_text

    return click.style(redact_text(text), **_style(mood))  # type: ignore[arg-type]  # a style is keyword arguments


def _style(mood: str) -> dict[str, object]:
    kind, _, outcome = mood.rpartition(" ")
    style = STYLES.get(outcome, STYLES["error"])
    return {**style, "bold": True} if kind else style


def print_json(data: object, indent: int | None) -> None:
    import json

    click.echo(json.dumps(data, ensure_ascii=False, indent=indent))


def answer_options(function: F) -> F:
    """`--home`, `--json` and `--budget`, which every question takes."""
    budget = click.option(
        "--budget",
        type=click.IntRange(1),
        metavar="N",
        help="At most so many tokens of text; never above 8000.",
    )
    return home_option(json_option(budget(function)))


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


@click.command(
    "show",
    cls=Examples,
    examples="""
  vestige show                       the latest run
  vestige show 4f2a --errors         only what failed, with what it stood in
  vestige show r7 --type tool        only the spans of one type
  vestige show r7 --from 2 --to 3.5  what happened between these seconds
  vestige show 8f3c.000001.ndjson    a journal file, wherever it is
  vestige show runs/3d1957bd-...     a run directory of AgentDbg
  vestige show r7 --json             the same, for a program
""",
    exits="0 shown, 2 no such run, 3 unreadable store",
)
@click.argument("run", required=False)
@click.option("--errors", is_flag=True, help="Only what failed, and what it stood in.")
@click.option("--type", "type", metavar="TYPE", help="Only spans of this type: llm, tool, ...")
@click.option(
    "--from", "from_", metavar="S", help="From this second of the run on; or from a span."
)
@click.option("--to", metavar="S", help="Up to this second of the run; or up to a span.")
@click.option("--depth", type=click.IntRange(0), metavar="N", help="At most so deep; 0 is the run.")
@click.option("--no-fold", is_flag=True, help="Every repeat on a line of its own.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Pass over the first N lines.")
@click.option(
    "--limit",
    show_default=str(SHOW_LINES_MAX),
    type=click.IntRange(1),
    metavar="N",
    help="At most so many lines. With --json: spans and log lines, all by default.",
)
@answer_options
def show(
    run: str | None,
    errors: bool,
    type: str | None,
    from_: str | None,
    to: str | None,
    depth: int | None,
    no_fold: bool,
    after: int | None,
    limit: int | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show how a run unfolded: one line per span or log line, oldest first.

    RUN is a run id, the first characters of one, a short id such as r7, any other id that
    leads to a run, a pasted log line, or a path: a home, a store, a journal, a run of another
    tool. Without RUN, the latest. Every line of a span starts with its short id.
    """
    narrowed = errors or as_json or (type, from_, to, depth, after) != (None,) * 5
    with open_debugger(home, run, glance=not narrowed) as (debugger, wanted):
        answer = debugger.show(
            wanted,
            errors=errors,
            fold=not no_fold,
            type=type,
            from_=from_,
            to=to,
            depth=depth,
            limit=limit,
            after=after,
        )
    print_answer(answer, as_json, budget)


@click.command(
    "overview",
    cls=Examples,
    examples="""
  vestige overview                   the latest run in one look
  vestige overview r7                outcome, shape, findings, what to ask next
  vestige overview call_7            the run in which this tool call happened
""",
    exits="0 shown, 2 no such run, 3 unreadable store",
)
@click.argument("id", required=False)
@answer_options
def overview(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Show a run in one look: how it ended, its shape, what is wrong, what to ask next.

    ID is anything that leads to a run: its id or the start of it, a short id, a span, a
    conversation, a tool call, a pasted line, a path. Without ID, the latest.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.overview(wanted)
    print_answer(answer, as_json, budget)


@click.command(
    "span",
    cls=Examples,
    examples="""
  vestige span r7.s12                attributes, parent, children, links, bodies
  vestige span call_7                the span that has this id as an attribute
  vestige span r7.s12 --json         the same, nothing cut
""",
    exits="0 shown, 2 no such span, or several, 3 unreadable store",
)
@click.argument("id")
@answer_options
def span(id: str, home: Home, as_json: bool, budget: int | None) -> None:
    """Show one span: what is known of it, where it stands, how its bodies begin.

    ID is a span id, its first characters (four or more), a short id such as r7.s12, or the
    value of an attribute. Of a run, its root span is shown.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.span(wanted or "")
    print_answer(answer, as_json, budget)


@click.command(
    "body",
    cls=Examples,
    examples="""
  vestige body r7.s12                        its input from the start; else its output
  vestige body r7.s12 --out --lines 1:40     lines of what came out
  vestige body r7.s12 --bytes 4000:8000      an exact stretch
  vestige body r7.s12 --path '$.messages[0]' one value inside JSON
""",
    exits="0 shown, 2 no such span, body or path in it, 3 unreadable store",
)
@click.argument("id")
@click.option("--in", "part", flag_value="input", help="What went in.")
@click.option("--out", "part", flag_value="output", help="What came out.")
@click.option("--head", is_flag=True, help="The first ten lines.")
@click.option(
    "--lines", metavar="A:B", help="From line A to line B, both included; the first is 1."
)
@click.option("--bytes", "bytes_", metavar="A:B", help="From byte A up to byte B; the first is 0.")
@click.option("--path", metavar="PATH", help="One value of a JSON body: $.messages[0].content.")
@answer_options
def body(
    id: str,
    part: Which | None,
    head: bool,
    lines: str | None,
    bytes_: str | None,
    path: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show what went into a span, or came out of it: the exact text, a stretch at a time.

    Each line stands behind a bar, for it is somebody else's text; what a terminal would
    obey is shown as an escape. Bytes that are no text are shown in hexadecimal.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.body(
            wanted or "", part=part, head=head, lines=lines, bytes=bytes_, path=path
        )
        print_answer(answer, as_json, budget)
