"""Open the store or file that a command reads, and print the answer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from vestige.cli.options import F, Home, home_option, json_option
from vestige.cli.terminal_text import style_line, wrap_line

if TYPE_CHECKING:
    from vestige.query.answer import Answer
    from vestige.query.debugger import Debugger
    from vestige.store.protocol import Store

PLAIN: Final = "ok"
"""The style of the lines of an answer that has no styles of its own."""


@contextmanager
def opened(home: Home, *, readonly: bool = True) -> Iterator[Store]:
    """Open the store of a home after importing its journals; read-only by default."""
    from vestige.collector.loop import catch_up
    from vestige.errors import NotFoundError
    from vestige.home import explain_missing, has_nothing
    from vestige.settings import find_store
    from vestige.store.open import open_store

    if has_nothing(home, find_store(home)):
        raise NotFoundError(explain_missing(home))
    catch_up(home)
    with open_store(find_store(home), readonly=readonly, root=home.root) as store:
        yield store


@contextmanager
def open_debugger(
    home: Home, id: str | None = None, *, glance: bool = False
) -> Iterator[tuple[Debugger, str | None]]:
    """Open a debugger on a home, or on the path that is used in place of an id.

    Yield it with the id to query. `glance`: the start of a long run is enough.
    """
    with open_debuggers(home, id, glance=glance) as (debugger, (id_to_query,)):
        yield debugger, id_to_query


@contextmanager
def open_debuggers(
    home: Home, *ids: str | None, glance: bool = False
) -> Iterator[tuple[Debugger, list[str | None]]]:
    """Open one debugger for several ids or paths."""
    from vestige.transfer import open_ids

    with open_ids(home, *ids, glance=glance) as (debugger, ids_to_query):
        if debugger.notice:  # beside the answer, not in it
            click.echo(f"vestige: {debugger.notice}", err=True)
        yield debugger, ids_to_query


def print_answer(answer: Answer, as_json: bool, budget: int | None) -> None:
    """Print an answer as text or JSON, and exit with its code if it is not zero.

    On a terminal the answer is complete, fits the width, and is paged if it is long. An explicit
    `--limit` overrules the default budget elsewhere, too.
    """
    if as_json:
        print_json(answer.data(), None if answer.dense else 2)
    else:
        print_answers([answer], budget)
    if answer.exit_code:
        sys.exit(answer.exit_code)


def print_answers(answers: Sequence[Answer], budget: int | None) -> None:
    """Print answers as text, with an empty line between them."""
    is_terminal = sys.stdout.isatty()
    lines: list[str] = []
    for answer in answers:
        if is_terminal:
            answer.columns = shutil.get_terminal_size().columns
        lines += ["", *_render(answer, budget)] if lines else _render(answer, budget)
    if is_terminal:
        page(lines)
    else:
        click.echo("\n".join(lines))


def _render(answer: Answer, budget: int | None) -> list[str]:
    from vestige.query.text_layout import CommandAnswer
    from vestige.query.token_budget import UNLIMITED, within

    complete = budget is None and (answer.columns is not None or _has_explicit_limit())
    limit = UNLIMITED if complete else within(budget, answer.budget)
    styled = getattr(answer, "styled", None)
    if styled is not None and answer.columns is None and isinstance(answer, CommandAnswer):
        rows = answer.state_options_once(styled, limit)
    elif styled is not None:
        rows = styled(limit)
    elif complete:
        rows = [(line, PLAIN) for line in answer.lines(limit)]
    else:
        rows = [(line, PLAIN) for line in answer.text(budget).split("\n")]
    if answer.columns is None:
        return [styled_line(text, style) for text, style in rows]
    return [
        styled_line(part, style) for text, style in rows for part in wrap_line(text, answer.columns)
    ]


def _has_explicit_limit() -> bool:
    """Return whether `--limit` was typed, perhaps for the command that called this one."""
    from click.core import ParameterSource

    context = click.get_current_context(silent=True)
    while context is not None:
        if context.get_parameter_source("limit") is ParameterSource.COMMANDLINE:
            return True
        context = context.parent
    return False


def page(lines: Sequence[str]) -> None:
    """Print to a terminal, through `$PAGER` if the lines do not fit the screen."""
    size = shutil.get_terminal_size()
    if sum(_count_rows(line, size.columns) for line in lines) < size.lines:
        click.echo("\n".join(lines))
        return
    os.environ.setdefault("LESS", "-R")  # colours in `less`, the usual pager
    context = click.get_current_context(silent=True)
    coloured = context is None or context.color is not False
    click.echo_via_pager((f"{line}\n" for line in lines), color=coloured)


def _count_rows(line: str, columns: int) -> int:
    from vestige.query.formatting import width

    return max(1, -(-width(click.unstyle(line)) // max(1, columns)))


def styled_line(text: str, style: str) -> str:
    from vestige.record.redaction.output_redaction import redact_text

    return style_line(redact_text(text), style)


def print_json(data: object, indent: int | None) -> None:
    import json

    click.echo(json.dumps(data, ensure_ascii=False, indent=indent))


def answer_options(function: F) -> F:
    """Add `--home`, `--json` and `--budget`, which every query command takes."""
    budget = click.option(
        "--budget",
        type=click.IntRange(1),
        metavar="N",
        help="Limit the output to N tokens (at most 50000).",
    )
    return home_option(json_option(budget(function)))
