"""`vestige store recover`: finalize runs, captures and bundles of crashed processes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vestige.cli.options import Examples, Home, home_option


@click.command(
    "recover",
    cls=Examples,
    examples="""
  vestige store recover                   finalize runs of crashed processes
  vestige store recover -o ./debug        also write bundles of unfinished captures to ./debug
  vestige store recover ./spool/x         one capture, a folder of captures, or a data directory
  vestige store recover ~/.agentdbg       unfinished AgentDbg runs
  vestige store recover tests/artifacts   bundles of killed test suites
  vestige store recover crash.wink        write the intact parts of a damaged bundle
""",
    exits="0 done, 1 some could not be recovered,"
    " 2 path not found or still running, 3 nothing recoverable",
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for debug bundles (default: bundles/ in the data directory).",
)
@home_option
def recover(path: Path | None, target: Path | None, home: Home) -> None:
    """Finalize runs of crashed processes.

    PATH is a data directory, a capture, an AgentDbg run, an artifact bundle, a folder of them, or
    a damaged debug bundle. Default: the data directory. Files of other tools are completed in
    their own format. Processes that are still running are left alone.

    An unfinished capture is written as a .wink file with everything captured so far. The intact
    parts of a damaged bundle are written to NAME-recovered.wink, and the bundle is not changed.
    """
    from vestige.errors import NotFoundError
    from vestige.home import get_home

    if path is not None:
        if not path.exists():
            raise NotFoundError(f"{path}: not found.")
        if path.is_file():
            _recover_bundle(path, target or home.bundles)
            return
        other = get_home(path)
        # A home with only an unfinished capture has no journal yet.
        if not other.journal.is_dir() and not other.spool.is_dir():
            sys.exit(_recover_files(path, target or home.bundles))
        captured = _recover_captures(path, target or home.bundles)
        if captured is not None:  # a capture is a home, too, of a different kind
            sys.exit(1 if captured else 0)
        home = other
    failed = _recover_captures(home.spool, target or home.bundles)
    _finish_runs(home)
    if failed:
        sys.exit(1)


def _recover_bundle(path: Path, target: Path) -> None:
    """Write the intact parts of a damaged debug bundle to a new bundle."""
    from vestige.errors import UnreadableError
    from vestige.formats import wink
    from vestige.transfer.bundle_files import salvage_bundle

    if path.suffix == ".jsonl" or not wink.is_readable(path):
        raise UnreadableError(f"{path}: nothing to recover (expected a .wink file).")
    found = salvage_bundle(path, target)
    if found.written is None:
        click.echo(f"{path}: not damaged.")
        return
    for problem in found.problems[:PROBLEMS_SHOWN]:
        click.echo(f"  {problem}", err=True)
    if len(found.problems) > PROBLEMS_SHOWN:
        click.echo(f"  … {len(found.problems) - PROBLEMS_SHOWN} more", err=True)
    click.echo(f"{found.written}: the intact parts of {path}")


PROBLEMS_SHOWN = 20


def _recover_files(path: Path, target: Path) -> int:
    """Recover captures, suites and runs of other tools. Return the exit code."""
    failed = _recover_captures(path, target)
    if failed is not None:
        return 1 if failed else 0
    if not _recover_suites(path):
        _recover_foreign(path)
    return 0


def _recover_captures(path: Path, target: Path) -> int | None:
    """Write bundles of the captures at a path.

    Return the number of failures, or None if there are no captures.
    """
    from vestige.debug.recover import is_spool, recover_spool, recover_spools

    if is_spool(path):
        one = recover_spool(path, target)
        if one is None:
            click.echo(f"{path}: its process is still running")
        recovered = [] if one is None else [one]
    else:
        recovered = list(recover_spools(path, target))
        if not recovered:
            return None
    for one in recovered:
        if one.bundle is not None:
            click.echo(f"{one.outcome} capture  {one.bundle}  vestige bundle show {one.bundle}")
        elif one.problem is not None:
            click.echo(f"vestige: {one.spool}: {one.problem}", err=True)
    return sum(one.problem is not None for one in recovered)


def _recover_suites(path: Path) -> bool:
    """Finish artifact bundles of killed suites. Return False if there are no bundles."""
    from vestige.artifacts.recover_suite import recover as recover_bundles
    from vestige.formats import artifacts

    finished = recover_bundles(path)
    for bundle in finished:
        running = ", ".join(map(repr, bundle.running)) or "no case"
        click.echo(f"{bundle.folder}: finalized ({running} was running)")
    if not finished and artifacts.is_readable(path):
        click.echo(f"{path}: nothing to recover.")
        return True
    return bool(finished)


def _recover_foreign(path: Path) -> None:
    from vestige.transfer import recover_source

    unfinished = list(recover_source(path))
    finished = [run for run, left in unfinished if not left]
    _print_finished(len(finished))
    for run in finished:
        click.echo(f"  {run}  vestige show {run}")
    for run, left in unfinished:
        if left:
            click.echo(f"  {run}: left alone, {left}", err=True)


def _finish_runs(home: Home) -> None:
    from vestige.cli.print_answer import opened
    from vestige.settings import find_store
    from vestige.store.open import open_store
    from vestige.store.protocol import RunFilter

    before: set[str] = set()
    if not isinstance(location := find_store(home), Path) or location.exists():
        with open_store(location) as store:
            before = {run.id for run in store.list_runs(RunFilter(failed=True))}
    with opened(home) as store:
        finished = [
            run
            for run in store.list_runs(RunFilter(failed=True))
            if run.outcome == "interrupted" and run.id not in before
        ]
    _print_finished(len(finished))
    for run in finished:
        click.echo(f"  {run.short_id}  {run.name}  vestige show {run.short_id}")


def _print_finished(count: int) -> None:
    from vestige.query.formatting import pluralize

    click.echo(f"Finalized {pluralize(count, 'crashed run')}")
