"""`vestige import`, `export`: read and write runs in the formats of other tools."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.cli.print_answer import opened
from vestige.cli.progress import ProgressBar
from vestige.errors import NotFoundError, StoreError, UnreadableError, UsageError
from vestige.formats import NAMES, WRITTEN

if TYPE_CHECKING:
    from vestige.transfer import ImportResult


REQUEST_FORMATS = ("curl", "python")
"""The formats of query/reproduce/request.py, repeated so that `--help` does not load it."""

REDACTIONS = ("mask", "omit", "hash", "passthrough")
"""The redaction modes of formats/openwop, repeated for the same reason."""

SHAPES = ("openai", "anthropic")
"""The shapes of formats/messages, repeated for the same reason."""

PAGE_FORMAT = "html"
"""The viewer with one run included (server/html_export.py)."""

SUFFIXES = {
    PAGE_FORMAT: ".html",
    "wink": ".wink",
    "openwop": ".json",
    "otlp": ".jsonl",
    "atif": ".atif.json",
    "messages": ".jsonl",
}
"""Formats of one file, which is named after the run if no path is set."""

PROBLEMS_SHOWN = 5
"""Problems shown per run: a damaged file may have one on every line."""


@click.command(
    "import",
    cls=Examples,
    examples="""
  vestige import ~/.agentdbg           all runs of an AgentDbg data directory
  vestige import runs/3d1957bd-...     one run directory
  vestige import crash.wink            a debug bundle
  vestige import run.json              an OpenWOP bundle
  vestige import traces.jsonl          OpenTelemetry traces (OTLP/JSON)
  vestige import exports/              all files below a folder that can be read
  vestige import jobs/                 trajectories of a Harbor job (ATIF)
  vestige import logs/                 evaluation logs of Inspect
  vestige import ~/.claude             sessions of Claude Code
  vestige import --discover            sessions of coding agents on this machine
""",
    exits="0 imported (or already present), 1 some could not be read, 2 path not found,"
    " 3 unsupported format. With several paths, 2 and 3 only if none could be read",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option(
    "--format", "format", type=click.Choice(NAMES), help="Format of PATH (default: detected)."
)
@click.option(
    "--discover",
    is_flag=True,
    help="Find sessions of Claude Code, Codex, Gemini CLI, OpenCode and others on this machine.",
)
@click.option("--yes", is_flag=True, help="With --discover: import without asking.")
@home_option
def import_runs(
    paths: tuple[Path, ...], format: str | None, discover: bool, yes: bool, home: Home
) -> None:
    """Import runs.

    PATH is a run, a folder of runs, or the data directory of another tool. Of any other folder,
    the files below it that have a supported format are imported. Importing a run again adds only
    new records. Secrets are redacted. A path that cannot be read does not stop the
    others.

    --discover lists the sessions of coding agents on this machine and asks before it imports
    them. Their files are only read.
    """
    if discover:
        if paths or format:
            raise UsageError("--discover: cannot be combined with PATH or --format.")
        from vestige.cli.manage.import_discovered_sessions import discover_and_import

        sys.exit(discover_and_import(home, yes=yes))
    if not paths:
        raise UsageError("import: a path is missing. Set PATH, or use --discover.")
    from vestige.transfer.agent_sessions import import_and_remember
    from vestige.transfer.import_runs import list_sources

    home.make()
    # Millions of small objects without cycles, freed with their batch.
    gc.disable()
    sources = {path: list_sources(path, format) for path in paths}
    total = sum(map(len, sources.values()))
    unreadable = 0
    failures: list[NotFoundError | UnreadableError] = []
    with (
        opened(home, readonly=False) as store,
        ProgressBar("Importing", total if total > 1 else None) as bar,
    ):
        for path, found in sources.items():
            runs = new = records = read = 0

            def count_records(more: int, path: Path = path) -> None:
                nonlocal records
                records += more
                bar.update(f"{path.name}: {records:,} records")

            for source in found:
                try:
                    for one in import_and_remember(store, source, format, count_records):
                        runs += one.run_id is not None
                        new += one.run_id is not None and not one.known
                        unreadable += one.run_id is None
                        print_problems(one, bar)
                    read += 1
                except StoreError:
                    raise  # it would also fail for the other paths
                except (NotFoundError, UnreadableError) as error:
                    failures.append(error)
                    bar.clear()
                    click.echo(f"vestige: {error}", err=True)
                bar.advance()
            if read:
                bar.clear()
                click.echo(_summary(path, runs, new))
    if len(failures) == total:
        sys.exit(failures[0].exit_code)
    if unreadable or failures:
        sys.exit(1)


def _summary(path: Path, runs: int, new: int) -> str:
    """Return the line that ends the import of a path."""
    from vestige.query.formatting import pluralize

    known = f" ({runs - new} already present)" if runs > new else ""
    return f"Imported {pluralize(new, 'run')} from {path}{known}"


def print_problems(one: ImportResult, bar: ProgressBar) -> None:
    from vestige.query.formatting import pluralize

    for problem in one.problems[:PROBLEMS_SHOWN]:
        bar.clear()
        # Files of one run name themselves; a problem of a folder names a file in it.
        is_named = str(problem).startswith(f"{one.path.name}:")
        click.echo(f"  {problem}" if is_named else f"  {one.path.name}/{problem}", err=True)
    more = len(one.problems) - PROBLEMS_SHOWN
    if more > 0:
        click.echo(f"  {one.path}: {pluralize(more, 'more problem')}", err=True)


@click.command(
    "export",
    cls=Examples,
    examples="""
  vestige export r7                               the viewer with this run: r7.html
  vestige export r7 --format agentdbg -o runs     into runs/<run id>/
  vestige export r7 --format openwop -o r7.json   a debug bundle, at most 8 MB
  vestige export r7 --format otlp -o r7.jsonl     OpenTelemetry (OTLP/JSON)
  vestige export r7 --format atif                 a trajectory for Harbor: r7.atif.json
  vestige export r7 --format wink                 a debug bundle: r7.wink
  vestige export r7.s12 --format curl             a recorded request as a shell script
  vestige export r7.s12 --format python -o x.py   the same as a Python program
""",
    exits="0 written, 2 run or span not found, or target exists, 3 store unreadable",
)
@click.argument("id")
@click.option(
    "--format",
    "format",
    default=PAGE_FORMAT,
    show_default=True,
    type=click.Choice([*WRITTEN, PAGE_FORMAT, *REQUEST_FORMATS]),
    help="Format of a run, or (curl, python) of one request.",
)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Output path. Default: a file such as r7.html here; curl and python: stdout.",
)
@click.option(
    "--redaction",
    type=click.Choice(REDACTIONS),
    help="(openwop) How to write a redacted secret (default: mask).",
)
@click.option(
    "--shape",
    type=click.Choice(SHAPES),
    help="(messages) Shape of the messages (default: openai).",
)
@home_option
def export(
    id: str,
    format: str,
    target: Path | None,
    redaction: str | None,
    shape: str | None,
    home: Home,
) -> None:
    """Export a run, or one request as a script that sends it again.

    ID is any id or path that leads to a run (for curl and python: to a span). The file is written
    completely or not at all. Secrets are redacted; a request's script reads them from environment
    variables.
    """
    from vestige.cli.print_answer import open_debugger
    from vestige.transfer import export_run, read_hash_key

    if format not in REQUEST_FORMATS and target is None and format not in SUFFIXES:
        raise click.UsageError(f"--format {format}: -o PATH is required.")
    with open_debugger(home, id) as (debugger, found_id):
        if format in REQUEST_FORMATS:
            _write_text(debugger.reproduce(found_id or "", format), target)
            return
        run = debugger.resolve(found_id, "run").run
        if target is None:
            target = Path(run.short_id + SUFFIXES[format])
        if format == PAGE_FORMAT:
            from vestige.server.html_export import export_html

            with ProgressBar("Exporting") as bar:
                export_html(
                    debugger,
                    found_id or "",
                    target,
                    lambda count, size: bar.update(f"{count:,} answers, {size / 1e6:,.0f} MB"),
                )
            click.echo(str(target))
            return
        key = read_hash_key(home) if redaction == "hash" else b""
        written = export_run(debugger.store, run.id, format, target, redaction, key, shape)
        click.echo(str(written))


def _write_text(text: str, target: Path | None) -> None:
    if target is None:
        click.echo(text, nl=False)
        return
    try:
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{target}: already exists. Choose another name.") from None
    click.echo(str(target))
