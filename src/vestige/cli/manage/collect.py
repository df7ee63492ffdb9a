"""`vestige collect`, `doctor`: the way from journals to the store."""

from __future__ import annotations

import sys
import threading

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home, home_option


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
    from vestige.query import formatting

    with hold(home) as collector:
        if collector is None:
            click.echo(f"vestige: {home.root}: another process collects already.", err=True)
            sys.exit(1)
        if once:
            taken = collector.tick()
            malformed = formatting.pluralize(taken.malformed, "malformed line")
            click.echo(f"took in {formatting.pluralize(taken.records, 'record')}, {malformed}")
            return
        stop = stop_when(until_eof)
        if not until_eof:
            click.echo(f"collecting {home.root}; Ctrl-C stops", err=True)
        collector.run(
            lambda seconds: not stop.wait(seconds),
            lambda text: click.echo(f"vestige: {text}", err=True),
        )


def stop_when(until_eof: bool) -> threading.Event:
    """Set by SIGINT or SIGTERM, or when the other end of our standard input is gone."""
    import signal

    stop = threading.Event()
    # A program that starts us may have blocked signals, and we have inherited that.
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
    with open_debugger(home) as (debugger, _):
        answer = debugger.doctor()
    print_answer(answer, as_json, budget)
