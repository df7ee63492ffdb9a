"""`vestige list` and `vestige show`: the first answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from vestige.doors.cli.options import DURATION, Examples, Home, home_option, json_option
from vestige.limits import LIST_MAX, SHOW_LINES_MAX

if TYPE_CHECKING:
    from vestige.query.timeline import Line
    from vestige.record.run import RunInfo
    from vestige.store.sqlite import SqliteStore

STYLES: dict[str, dict[str, object]] = {
    "ok": {},
    "error": {"fg": "red"},
    "open": {"fg": "yellow"},
    "warn": {"fg": "yellow"},
    "log": {"dim": True},
    "stamp": {"fg": "red", "bold": True},
    "running": {"fg": "cyan"},
    "interrupted": {"fg": "red", "bold": True},
}


@contextmanager
def opened(home: Home, *, readonly: bool = True) -> Iterator[SqliteStore]:
    """The store of a home, brought up to its journals; questions open it read-only."""
    from vestige.collector.loop import catch_up
    from vestige.errors import NotFoundError
    from vestige.store.sqlite import SqliteStore

    if not home.root.is_dir():
        raise NotFoundError(
            f"{home.root}: no such home. Record something first: `vestige run -- COMMAND`."
        )
    catch_up(home)
    with SqliteStore.open(home.store, readonly=readonly) as store:
        yield store


@click.command(
    "list",
    cls=Examples,
    examples="""
  vestige list                        the latest runs, newest first
  vestige list --failed --since 2d    what went wrong lately
  vestige list --json | jq '.runs[0]' the same, for a program
""",
    exits="0 shown (also when there is nothing), 2 no such home, 3 unreadable store",
)
@click.option("--failed", is_flag=True, help="Only runs that ended badly.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only runs younger than this: 2h, 7d.")
@click.option("--name", metavar="TEXT", help="Only runs whose name contains this.")
@click.option("--conversation", metavar="ID", help="Only runs of this conversation.")
@click.option("--all", "everything", is_flag=True, help="Also the runs of mere processes.")
@click.option(
    "--limit", default=LIST_MAX, show_default=True, type=click.IntRange(1), metavar="N",
    help="At most so many runs.",
)  # fmt: skip
@home_option
@json_option
def list_runs(
    failed: bool,
    since: float | None,
    name: str | None,
    conversation: str | None,
    everything: bool,
    limit: int,
    home: Home,
    as_json: bool,
) -> None:
    """List runs: what ran, when, and how it ended.

    The first column is a short id: give it to `vestige show`.
    """
    from vestige.clock import SYSTEM
    from vestige.store.base import RunFilter

    now_ns = SYSTEM.now_ns()
    wanted = RunFilter(
        failed=failed,
        since_ns=None if since is None else now_ns - int(since * 1e9),
        name=name,
        conversation_id=conversation,
        with_implicit=everything,
        limit=limit + 1,
    )
    with opened(home) as store:
        found = list(store.list_runs(wanted))
    if as_json:
        from vestige.query.show import list_data

        _print_json(list_data(found[:limit]))
    elif not found:
        click.echo("No runs. Record one: vestige run -- python your_agent.py")
    else:
        _print_runs(found[:limit], now_ns)
        if len(found) > limit:
            click.echo(f"… more: vestige list --limit {limit * 5}")


def _print_runs(runs: list[RunInfo], now_ns: int) -> None:
    from vestige.query import words

    table = [("ID", "NAME", "OUTCOME", "STARTED", "TOOK", "SPANS", "FAILED", "TOKENS")]
    for run in runs:
        took = run.duration_ns if run.duration_ns is not None else run.last_ns - run.started_ns
        table.append(
            (
                run.short_id,
                words.one_line(run.name, 40) + (" *" if run.pinned else ""),
                run.outcome,
                words.ago(run.started_ns, now_ns),
                words.duration(took),
                str(run.span_count),
                str(run.error_count) if run.error_count else "",
                words.number(run.tokens) if run.tokens else "",
            )
        )
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for number, row in enumerate(table):
        cells = [
            cell.rjust(width) if column >= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if number == 0:
            click.echo(click.style("  ".join(cells).rstrip(), dim=True))
        else:
            mood = row[2] if row[2] in STYLES else "error"
            cells[2] = click.style(cells[2], **STYLES[mood])  # type: ignore[arg-type]
            click.echo("  ".join(cells).rstrip())


@click.command(
    "show",
    cls=Examples,
    examples="""
  vestige show                       the latest run
  vestige show 4f2a --errors         only what failed, with what it stood in
  vestige show r7 --json             the same, for a program
""",
    exits="0 shown, 2 no such run, 3 unreadable store",
)
@click.argument("run", required=False)
@click.option("--errors", is_flag=True, help="Only what failed, and what it stood in.")
@click.option("--no-fold", is_flag=True, help="Show every repeat on a line of its own.")
@click.option(
    "--limit", default=SHOW_LINES_MAX, show_default=True, type=click.IntRange(1), metavar="N",
    help="At most so many lines.",
)  # fmt: skip
@home_option
@json_option
def show(
    run: str | None, errors: bool, no_fold: bool, limit: int, home: Home, as_json: bool
) -> None:
    """Show how a run unfolded: one line per span or log line, oldest first.

    RUN is a run id, the first characters of one, or a short id such as r7. Without
    RUN, the latest. Every line of a span starts with its short id.
    """
    from vestige.query.find import find_run
    from vestige.query.show import header, show_data, stamps
    from vestige.query.timeline import timeline

    with opened(home) as store:
        loaded = store.load_run(find_run(store, run).id)
    if as_json:
        _print_json(show_data(loaded))
        return
    first, *rest = header(loaded)
    outcome = loaded.info.outcome
    style = STYLES[outcome if outcome in STYLES else "error"]
    click.echo(click.style(first, **{**style, "bold": True}))  # type: ignore[arg-type]
    for text in rest:
        click.echo(text)
    for text in stamps(loaded):
        click.echo(click.style(f"!! {text}", **STYLES["stamp"]))  # type: ignore[arg-type]
    click.echo()
    _print_timeline(timeline(loaded, errors_only=errors, fold=not no_fold), limit, run)


def _print_timeline(lines: list[Line], limit: int, run: str | None) -> None:
    from vestige.query.show import render_line

    width = max((len(line.id) for line in lines), default=1)
    # The end of a run is what one came for: a long one is cut in the middle.
    head = lines[: limit // 4] if len(lines) > limit else lines
    tail = lines[len(lines) - (limit - len(head)) :] if len(lines) > limit else []
    for part in (head, tail):
        for line in part:
            click.echo(click.style(render_line(line, width), **STYLES[line.mood]))  # type: ignore[arg-type]
        if part is head and tail:
            again = " ".join(["vestige show", *([run] if run else []), f"--limit {len(lines)}"])
            click.echo(f"… {len(lines) - limit} lines left out here; all of them: {again}")


def _print_json(data: object) -> None:
    import json

    click.echo(json.dumps(data, ensure_ascii=False, indent=2))
