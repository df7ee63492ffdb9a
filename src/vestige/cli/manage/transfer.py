"""`vestige import`, `export`: runs of other tools come in, runs of ours go out."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.errors import UsageError
from vestige.formats import NAMES

if TYPE_CHECKING:
    from vestige.transfer import ImportResult


REQUEST_FORMATS = ("curl", "python")
"""As query/reproduce/request.py has them; named here so that `--help` need not load it."""

REDACTIONS = ("mask", "omit", "hash", "passthrough")
"""As formats/openwop has them; named here for the same reason."""

PAGE_FORMAT = "html"
"""The viewer with a run inside (server/html_export.py)."""

PROGRESS_STEP = 1_000
"""Records between two looks at the terminal."""

ANSWERS_STEP = 100
"""Answers of an exported page between two looks."""

PROBLEMS_SHOWN = 5
"""Of one run: a damaged file may have as many as it has lines."""


@click.command(
    "import",
    cls=Examples,
    examples="""
  vestige import ~/.agentdbg           every run of an AgentDbg data directory
  vestige import runs/3d1957bd-...     one run directory
  vestige import crash.wink            a debug bundle
  vestige import run.json              an OpenWOP bundle
  vestige import traces.jsonl          OpenTelemetry's traces (OTLP/JSON)
""",
    exits="0 taken in (also when all was known), 1 some could not be read, 2 no such path,"
    " 3 nothing that can be imported",
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@click.option("--format", "format", type=click.Choice(NAMES), help="Do not guess the format.")
@home_option
def import_runs(paths: tuple[Path, ...], format: str | None, home: Home) -> None:
    """Take runs of another format into the store.

    PATH is a run, a folder of runs, or a whole data directory. Importing again changes
    nothing, or adds what is new. Secrets that the other tool kept in clear are masked.
    """
    from vestige.query import formatting
    from vestige.store.sqlite.sqlite_store import SqliteStore
    from vestige.transfer import import_path

    home.make()
    # Millions of small objects, none in a cycle, all gone with their batch.
    gc.disable()
    unreadable = 0
    with SqliteStore.open(home.store) as store:
        for path in paths:
            runs = new = 0
            progress = _Progress()
            for one in import_path(store, path, format, progress.add):
                runs += one.run_id is not None
                new += one.run_id is not None and not one.known
                unreadable += one.run_id is None
                progress.runs = runs
                _say(one, progress)
            progress.end()
            click.echo(f"{path}: {formatting.pluralize(runs, 'run')}, {new} of them new")
    if unreadable:
        sys.exit(1)


def _say(one: ImportResult, progress: _Progress) -> None:
    for problem in one.problems[:PROBLEMS_SHOWN]:
        progress.end()
        click.echo(f"  {one.path.name}/{problem}", err=True)
    more = len(one.problems) - PROBLEMS_SHOWN
    if more > 0:
        click.echo(f"  {one.path}: {more} more problems", err=True)


class _Progress:
    """One line on a terminal that counts up: many runs, or one that is long."""

    def __init__(self) -> None:
        self.runs = 0
        self._records = self._shown = 0
        self._terminal = sys.stderr.isatty()

    def add(self, records: int) -> None:
        self._records += records
        if self._terminal and self._records >= self._shown + PROGRESS_STEP:
            self._shown = self._records
            click.echo(f"\r{self.runs:,} runs, {self._records:,} records", err=True, nl=False)

    def tell_answers(self, count: int, size_bytes: int) -> None:
        if self._terminal and count % ANSWERS_STEP == 0:
            click.echo(f"\r{count:,} answers, {size_bytes / 1e6:,.0f} MB", err=True, nl=False)

    def end(self) -> None:
        if self._terminal:
            click.echo("\r\033[K", err=True, nl=False)


@click.command(
    "export",
    cls=Examples,
    examples="""
  vestige export r7 --format agentdbg -o runs     into runs/<run id>/
  vestige export r7 --format openwop -o r7.json   a debug bundle, at most 8 MB
  vestige export r7 --format otlp -o r7.jsonl     OpenTelemetry's OTLP/JSON
  vestige export r7 --format html -o crash.html   the viewer with this run, as one file
  vestige export r7.s12 --format curl             a recorded request as a shell script
  vestige export r7.s12 --format python -o x.py   the same as a Python program
""",
    exits="0 written, 2 no such run or span, or the target is in the way, 3 unreadable store",
)
@click.argument("id")
@click.option(
    "--format",
    "format",
    required=True,
    type=click.Choice([*NAMES, PAGE_FORMAT, *REQUEST_FORMATS]),
    help="Of a run, or of one request.",
)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to write it. A single request may go to standard output.",
)
@click.option(
    "--redaction",
    type=click.Choice(REDACTIONS),
    help="Of openwop: what stands in place of a masked secret. Default there: mask.",
)
@home_option
def export(id: str, format: str, target: Path | None, redaction: str | None, home: Home) -> None:
    """Write a run in another format, or one request as a program that sends it again.

    ID is anything that leads to a run (or, for curl and python, to a span), or the path of
    one. Nothing is left half written. Secrets are masked: a request's script takes them from
    environment variables.
    """
    from vestige.cli.answers import open_debugger
    from vestige.transfer import export_run, read_hash_key

    if format not in REQUEST_FORMATS and target is None:
        raise click.UsageError(f"--format {format} needs a place to write to: -o PATH.")
    with open_debugger(home, id) as (debugger, wanted):
        if format in REQUEST_FORMATS:
            _write_text(debugger.reproduce(wanted or "", format), target)
            return
        assert target is not None
        if format == PAGE_FORMAT:
            from vestige.server.html_export import export_html

            progress = _Progress()
            try:
                export_html(debugger, wanted or "", target, progress.tell_answers)
            finally:
                progress.end()
            click.echo(str(target))
            return
        run = debugger.resolve(wanted, "run").run
        key = read_hash_key(home) if redaction == "hash" else b""
        click.echo(str(export_run(debugger.store, run.id, format, target, redaction, key)))


def _write_text(text: str, target: Path | None) -> None:
    if target is None:
        click.echo(text, nl=False)
        return
    try:
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{target}: is there already. Choose another name.") from None
    click.echo(str(target))
