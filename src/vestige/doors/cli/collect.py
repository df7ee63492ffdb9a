"""`vestige collect`, `doctor`, `recover`: the way from journals to the store."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import click

from vestige.doors.cli.options import Examples, Home, home_option
from vestige.doors.cli.read import answer_options, asked, print_answer


@click.command(
    "collect",
    cls=Examples,
    examples="""
  vestige collect             keep taking journals in, until stopped
  vestige collect --once      take in what is there, and go
""",
    exits="0 done, 1 somebody else collects this home already, 3 unreadable store",
)
@click.option("--once", is_flag=True, help="Take in what is there now, then stop.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when standard input closes.")
@home_option
def collect(once: bool, until_eof: bool, home: Home) -> None:
    """Take journals into the store as they grow.

    Not needed for anything to work: every reading command takes in what is there
    first. It keeps that step short, and prunes on a cadence.
    """
    from vestige.collector.loop import hold

    with hold(home) as collector:
        if collector is None:
            click.echo(f"vestige: {home.root}: another process collects already.", err=True)
            sys.exit(1)
        if once:
            taken = collector.tick()
            click.echo(f"took in {taken.records} records, {taken.malformed} malformed lines")
            return
        stop = _stop_when(until_eof)
        if not until_eof:
            click.echo(f"collecting {home.root}; Ctrl-C stops", err=True)
        collector.run(
            lambda seconds: not stop.wait(seconds),
            lambda text: click.echo(f"vestige: {text}", err=True),
        )


def _stop_when(until_eof: bool) -> threading.Event:
    """Set by SIGINT or SIGTERM, or when the other end of our standard input is gone."""
    import signal

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if until_eof:

        def wait_for_eof() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            stop.set()

        threading.Thread(target=wait_for_eof, daemon=True).start()
    return stop


@click.command(
    "doctor",
    cls=Examples,
    examples="""
  vestige doctor                where the evidence is, and how it does
  vestige doctor --json         the same, for a program
""",
    exits="0 all is well, 1 something is lost or unhealthy, 2 no such home, 3 unreadable store",
)
@answer_options
def doctor(home: Home, as_json: bool, budget: int | None) -> None:
    """Say where evidence lives, and whether it is healthy."""
    with asked(home) as (debugger, _):
        answer = debugger.doctor()
    print_answer(answer, as_json, budget)


@click.command(
    "recover",
    cls=Examples,
    examples="""
  vestige recover               finish everything that dead processes left in the home
  vestige recover -o ./debug    the same, with the bundles of dead captures in ./debug
  vestige recover ./spool/x     one capture, a folder of them, or a home elsewhere
  vestige recover ~/.agentdbg   finish AgentDbg runs that were left `running`
""",
    exits="0 done (also when there was nothing to do), 1 some could not be recovered,"
    " 2 no such path, 3 nothing that can be recovered",
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "target", type=click.Path(path_type=Path), metavar="DIR",
    help="Where bundles go. Default: bundles/ in the home.",
)  # fmt: skip
@home_option
def recover(path: Path | None, target: Path | None, home: Home) -> None:
    """Finish what a dead process left: take its records in, and stamp how it ended.

    PATH is a home, a capture, or runs of another tool: an AgentDbg run, a folder of them, a
    data directory. Those are finished on disk, as their format has it; a live one is left alone.
    A debug bundle that was being captured is completed, with all that was captured up to then
    and the outcome `interrupted`, and written as a .wink file.
    """
    from vestige.errors import NotFoundError
    from vestige.home import get_home

    if path is not None and not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    spools = home.spool if path is None else path
    failed = _recover_captures(spools, target or home.bundles)
    if path is not None:
        if failed is not None:
            sys.exit(1 if failed else 0)
        home = get_home(path)
        if not home.journal.is_dir():
            _recover_foreign(path)
            return
        failed = _recover_captures(home.spool, target or home.bundles)
    _finish_runs(home)
    if failed:
        sys.exit(1)


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


def _finish_runs(home: Home) -> None:
    from vestige.doors.cli.read import opened
    from vestige.store.base import RunFilter
    from vestige.store.sqlite import SqliteStore

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
    click.echo(f"{len(finished)} interrupted runs were finished")
    for run in finished:
        click.echo(f"  {run.short_id}  {run.name}  vestige show {run.short_id}")


def _recover_foreign(path: Path) -> None:
    from vestige.transfer import recover_source

    unfinished = list(recover_source(path))
    finished = [run for run, left in unfinished if not left]
    click.echo(f"{len(finished)} interrupted runs were finished")
    for run in finished:
        click.echo(f"  {run}  vestige show {run}")
    for run, left in unfinished:
        if left:
            click.echo(f"  {run}: left alone, {left}", err=True)
