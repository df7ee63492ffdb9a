"""`vestige recover`: finish what a dead process left, whatever it was writing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vestige.cli.options import Examples, Home, home_option


@click.command(
    "recover",
    cls=Examples,
    examples="""
  vestige recover                   finish everything that dead processes left in the home
  vestige recover -o ./debug        the same, with the bundles of dead captures in ./debug
  vestige recover ./spool/x         one capture, a folder of them, or a home elsewhere
  vestige recover ~/.agentdbg       AgentDbg runs that were left `running`
  vestige recover tests/artifacts   the bundles of suites that were killed
  vestige recover crash.wink        a new bundle of what is intact in a damaged one
""",
    exits="0 done (also when there was nothing to do), 1 some could not be recovered,"
    " 2 no such path or still running, 3 nothing that can be recovered",
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where debug bundles go. Default: bundles/ in the home.",
)
@home_option
def recover(path: Path | None, target: Path | None, home: Home) -> None:
    """Finish what a dead process left: take its records in, and stamp how it ended.

    PATH is a home, a capture, an AgentDbg run or a folder of them, an artifact bundle of a
    test suite or a tree of them, or a damaged debug bundle. Files of other tools are finished on disk, as their format has
    it; what is still alive is left alone. A debug bundle that was being captured is completed
    with all that was captured up to then, and written as a .wink file. Of a debug bundle that is
    damaged, every intact part is written to NAME-recovered.wink; the bundle itself stays as it is.
    """
    from vestige.errors import NotFoundError
    from vestige.home import get_home

    if path is not None:
        if not path.exists():
            raise NotFoundError(f"{path}: no such file or directory.")
        if path.is_file():
            _recover_bundle(path, target or home.bundles)
            return
        given = get_home(path)
        # A home in which nothing but a capture was begun has no journal yet.
        if not given.journal.is_dir() and not given.spool.is_dir():
            sys.exit(_recover_files(path, target or home.bundles))
        captured = _recover_captures(path, target or home.bundles)
        if captured is not None:  # a capture is a home, too, but of its own kind
            sys.exit(1 if captured else 0)
        home = given
    failed = _recover_captures(home.spool, target or home.bundles)
    _finish_runs(home)
    if failed:
        sys.exit(1)


def _recover_bundle(path: Path, target: Path) -> None:
    """What is intact in a damaged debug bundle, as a new one."""
    from vestige.errors import UnreadableError
    from vestige.formats import wink
    from vestige.transfer.bundle_files import salvage_bundle

    if path.suffix == ".jsonl" or not wink.is_readable(path):
        raise UnreadableError(
            f"{path}: nothing here that can be recovered (expected a .wink file)."
        )
    found = salvage_bundle(path, target)
    if found.written is None:
        click.echo(f"{path}: nothing is damaged.")
        return
    for problem in found.problems[:PROBLEMS_SHOWN]:
        click.echo(f"  {problem}", err=True)
    if len(found.problems) > PROBLEMS_SHOWN:
        click.echo(f"  … {len(found.problems) - PROBLEMS_SHOWN} more", err=True)
    click.echo(f"{found.written}: everything else of {path}")


PROBLEMS_SHOWN = 20


def _recover_files(path: Path, target: Path) -> int:
    """What is no home: captures, suites, runs of other tools. The exit code."""
    failed = _recover_captures(path, target)
    if failed is not None:
        return 1 if failed else 0
    if not _recover_suites(path):
        _recover_foreign(path)
    return 0


def _recover_captures(path: Path, target: Path) -> int | None:
    """Bundles of the captures at a path; how many failed, None if there are no captures at all."""
    from vestige.debug.recover import is_spool, recover_spool, recover_spools

    if is_spool(path):
        one = recover_spool(path, target)
        if one is None:
            click.echo(f"{path}: its process is alive, and still captures")
        recovered = [] if one is None else [one]
    else:
        recovered = list(recover_spools(path, target))
        if not recovered:
            return None
    for one in recovered:
        if one.bundle is not None:
            click.echo(f"{one.outcome} capture  {one.bundle}  vestige debug {one.bundle}")
        elif one.problem is not None:
            click.echo(f"vestige: {one.spool}: {one.problem}", err=True)
    return sum(one.problem is not None for one in recovered)


def _recover_suites(path: Path) -> bool:
    """Artifact bundles of killed suites at a path; False: there are none to finish."""
    from vestige.artifacts.recover_suite import recover as recover_bundles
    from vestige.formats import artifacts

    finished = recover_bundles(path)
    for bundle in finished:
        running = ", ".join(map(repr, bundle.running)) or "no case"
        click.echo(f"{bundle.folder}: finished; {running} was running")
    if not finished and artifacts.is_readable(path):
        click.echo(f"{path}: nothing to finish.")
        return True
    return bool(finished)


def _recover_foreign(path: Path) -> None:
    from vestige.transfer import recover_source

    unfinished = list(recover_source(path))
    finished = [run for run, left in unfinished if not left]
    _say_finished(len(finished))
    for run in finished:
        click.echo(f"  {run}  vestige show {run}")
    for run, left in unfinished:
        if left:
            click.echo(f"  {run}: left alone, {left}", err=True)


def _finish_runs(home: Home) -> None:
    from vestige.cli.answers import opened
    from vestige.store.protocol import RunFilter
    from vestige.store.sqlite.sqlite_store import SqliteStore

    before: set[str] = set()
    if home.store.exists():
        with SqliteStore.open(home.store) as store:
            before = {run.id for run in store.list_runs(RunFilter(failed=True))}
    with opened(home) as store:
        finished = [
            run
            for run in store.list_runs(RunFilter(failed=True))
            if run.outcome == "interrupted" and run.id not in before
        ]
    _say_finished(len(finished))
    for run in finished:
        click.echo(f"  {run.short_id}  {run.name}  vestige show {run.short_id}")


def _say_finished(count: int) -> None:
    from vestige.query.formatting import pluralize

    click.echo(f"{pluralize(count, 'interrupted run')} {'was' if count == 1 else 'were'} finished")
