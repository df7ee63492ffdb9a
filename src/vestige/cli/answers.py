"""Open what a command is asked about, and print the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from vestige.cli.options import F, Home, home_option, json_option

if TYPE_CHECKING:
    from vestige.query.answer import Answer
    from vestige.query.debugger import Debugger
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
