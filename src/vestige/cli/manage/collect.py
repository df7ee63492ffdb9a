"""`vestige store collect`: import journals continuously."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.cli.progress import ProgressBar

if TYPE_CHECKING:
    from vestige.store.protocol import Store

LOGS_INTERVAL_S = 1.0
"""Seconds between two looks at the sessions of coding agents."""

FOLLOW_S = 5.0
"""Seconds of importing sessions, before journals are imported again."""

REPORTS_MAX = 100


@click.command(
    "collect",
    cls=Examples,
    examples="""
  vestige store collect             import continuously, until stopped
  vestige store collect --once      import once and exit
  vestige store collect --logs      also follow the sessions of coding agents on this machine
""",
    exits="0 done, 1 another process collects already, 3 store unreadable",
)
@click.option("--once", is_flag=True, help="Import what is there now, then exit.")
@click.option(
    "--logs",
    is_flag=True,
    help="Also import sessions of coding agents on this machine, while they are written.",
)
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when standard input closes.")
@home_option
def collect(once: bool, logs: bool, until_eof: bool, home: Home) -> None:
    """Import journals continuously.

    This is optional: commands import new data automatically. A running collector keeps that
    step short, and prunes old runs regularly.
    """
    from vestige.collector.loop import hold
    from vestige.query import formatting

    with hold(home) as collector:
        if collector is None:
            click.echo(f"vestige: {home.root}: another process is collecting already.", err=True)
            sys.exit(1)
        stop = threading.Event() if once else stop_when(until_eof)
        seconds_max = math.inf if once else FOLLOW_S
        follow = _follow_logs(collector.store, stop.is_set, seconds_max) if logs else None
        if once:
            with ProgressBar("Importing journals") as bar:
                counts = collector.tick(on_journal=bar.show)
            if follow is not None:
                counts.records += follow()
            malformed = formatting.pluralize(counts.malformed, "malformed line")
            click.echo(f"imported {formatting.pluralize(counts.records, 'record')}, {malformed}")
            return
        if not until_eof:
            click.echo(f"Collecting {home.root} (Ctrl-C to stop)", err=True)

        def keep_on(seconds: float) -> bool:
            if follow is not None:
                follow()
            return not stop.wait(seconds)

        collector.run(keep_on, lambda text: click.echo(f"vestige: {text}", err=True))


def _follow_logs(
    store: Store, is_stopped: Callable[[], bool], seconds_max: float
) -> Callable[[], int]:
    """Return a function that imports new entries of agents' sessions, at most once a second.

    It imports for some seconds, so that journals are not kept waiting. An error is reported once,
    and does not end the collector.
    """
    import os

    from vestige._runtime.clock import SYSTEM
    from vestige.errors import VestigeError
    from vestige.transfer.agent_homes import find_agent_homes
    from vestige.transfer.agent_sessions import LogFollower

    reported: set[str] = set()

    def report(text: str) -> None:
        if text not in reported and len(reported) < REPORTS_MAX:
            reported.add(text)
            click.echo(f"vestige: {text}", err=True)

    homes = find_agent_homes(os.environ)
    follower = LogFollower(store, homes, lambda: SYSTEM.now_ns() / 1e9, report)
    ticked_s = 0.0

    def follow() -> int:
        nonlocal ticked_s
        now_s = SYSTEM.now_ns() / 1e9
        if abs(now_s - ticked_s) < LOGS_INTERVAL_S:
            return 0
        ticked_s = now_s
        try:
            return follower.tick(seconds_max, is_stopped)
        except (VestigeError, OSError) as error:
            report(f"following sessions failed ({error}); will go on.")
            return 0

    return follow


def stop_when(until_eof: bool) -> threading.Event:
    """Return an event that SIGINT, SIGTERM or (if requested) the end of stdin sets."""
    import signal

    stop = threading.Event()
    # A program that starts this process may have blocked signals, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if until_eof:

        def wait_for_eof() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            stop.set()

        threading.Thread(target=wait_for_eof, daemon=True).start()
    return stop
