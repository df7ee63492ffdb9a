"""`vestige run -- COMMAND`: record a program from outside."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.home import is_default
from vestige.limits import END_LINE_S


@click.command(
    "run",
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige run -- python agent.py                 record it, and see how it ends
  vestige run --name nightly -- python -m agent  under a name of your own
  vestige run --no-wire -- python agent.py       without what it says to model providers
  vestige run --quiet -- python agent.py         without the line at the end
""",
    exits="the command's own; 128 + n if signal n killed it; 2 if it could not be started",
)
@click.option("--name", metavar="NAME", help="What to call the run. Default: the program.")
@click.option("--no-wire", is_flag=True, help="Do not record HTTP calls to model providers.")
@click.option("--no-logs", is_flag=True, help="Do not record what goes through `logging`.")
@click.option("--no-prints", is_flag=True, help="Do not record what it prints.")
@click.option("--quiet", "-q", is_flag=True, help="Do not say at the end how it went.")
@home_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(
    name: str | None,
    no_wire: bool,
    no_logs: bool,
    no_prints: bool,
    quiet: bool,
    home: Home,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND with recording on.

    Python programs are recorded from their first moment, child processes included;
    of any other program you get how it ended. What they say to model providers over HTTP is
    recorded as it goes out and comes back, and so are their log lines and what they print.
    Terminal, signals and exit code are the command's own.

    On a terminal, one line at the end says how it went and what to type next. It goes to
    stderr, and not into a file or a pipe: somebody may read what the command says there.
    """
    from vestige.boot import boot_environment
    from vestige.collector.run_supervisor import run_command

    env = boot_environment(os.environ, wire=not no_wire, logs=not no_logs, prints=not no_prints)
    told = not quiet and sys.stderr is not None and sys.stderr.isatty()
    sys.exit(run_command(home, command, env, name, partial(_tell_end, home) if told else None))


def _tell_end(home: Home, run_id: str, ok: bool) -> None:
    """One line; whatever goes wrong with it, the command's exit code stays."""
    try:
        click.echo(f"vestige: {_end_line(home, run_id, ok)}", err=True)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  # the command is done: it was fine
        return


def _end_line(home: Home, run_id: str, ok: bool) -> str:
    """From the store, once it has the end; else, when that takes too long, what is known anyway."""
    from vestige._runtime import clock
    from vestige.query.views.run_summary_line import next_command

    at = "" if is_default(home) else f"--home {shlex.quote(str(home.root))}"
    deadline = clock.monotonic() + END_LINE_S
    while clock.monotonic() < deadline:
        line = _read_end_line(home, run_id, at)
        if line is not None:
            return line
        clock.sleep(0.02)  # somebody else collects this home: it is theirs to take in
    return f"recorded. Next: {next_command(run_id, ok, at)}"


def _read_end_line(home: Home, run_id: str, at: str) -> str | None:
    from vestige.errors import VestigeError
    from vestige.query.views.run_summary_line import end_line
    from vestige.store.sqlite.sqlite_store import SqliteStore

    try:
        with SqliteStore.open(home.store, readonly=True) as store:
            return end_line(store, run_id, at)
    except VestigeError:  # no store yet, or one that cannot be read: the next command says so
        return None
