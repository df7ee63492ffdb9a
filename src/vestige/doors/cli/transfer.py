"""`vestige import`, `export`: runs of other tools come in, runs of ours go out."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.doors.cli.options import Examples, Home, home_option
from vestige.formats import NAMES

if TYPE_CHECKING:
    from vestige.transfer import Imported


@click.command(
    "import",
    cls=Examples,
    examples="""
  vestige import ~/.agentdbg           every run of an AgentDbg data directory
  vestige import runs/3d1957bd-...     one run directory
  vestige import crash.wink            a debug bundle
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
    from vestige.store.sqlite import SqliteStore
    from vestige.transfer import import_path

    home.make()
    # Millions of small objects, none in a cycle, all gone with their batch.
    gc.disable()
    unreadable = 0
    with SqliteStore.open(home.store) as store:
        for path in paths:
            runs = new = 0
            for one in import_path(store, path, format):
                runs += one.run_id is not None
                new += one.run_id is not None and not one.known
                unreadable += one.run_id is None
                _say(one)
                _show_progress(runs)
            _end_progress()
            click.echo(f"{path}: {runs} runs, {new} of them new")
    if unreadable:
        sys.exit(1)


def _say(one: Imported) -> None:
    for problem in one.problems[:PROBLEMS_SHOWN]:
        _end_progress()
        click.echo(f"  {one.path.name}/{problem}", err=True)
    more = len(one.problems) - PROBLEMS_SHOWN
    if more > 0:
        click.echo(f"  {one.path}: {more} more problems", err=True)


def _show_progress(runs: int) -> None:
    if sys.stderr.isatty() and runs % 10 == 0:
        click.echo(f"\r{runs} runs", err=True, nl=False)


def _end_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)


PROBLEMS_SHOWN = 5
"""Of one run: a damaged file may have as many as it has lines."""


@click.command(
    "export",
    cls=Examples,
    examples="""
  vestige export r7 --format agentdbg -o runs     into runs/<run id>/
  vestige export r7 --format wink -o r7.wink      one file that opens anywhere
""",
    exits="0 written, 2 no such run, or the target is in the way, 3 unreadable store",
)
@click.argument("id")
@click.option("--format", "format", required=True, type=click.Choice(NAMES), help="Which one.")
@click.option(
    "-o", "--output", "target", type=click.Path(path_type=Path), metavar="PATH", required=True,
    help="Where to write it.",
)  # fmt: skip
@home_option
def export(id: str, format: str, target: Path, home: Home) -> None:
    """Write a run in another format.

    ID is anything that leads to a run, or the path of one. Nothing is left half written.
    """
    from vestige.doors.cli.read import asked
    from vestige.transfer import export_run

    with asked(home, id) as (debugger, wanted):
        run = debugger.resolve(wanted, "run").run
        made = export_run(debugger.store, run.id, format, target)
    click.echo(str(made))
