"""`vestige run -- COMMAND`: record a program from outside."""

from __future__ import annotations

import os
import sys

import click

from vestige.doors.cli.options import Examples, Home, home_option


@click.command(
    "run",
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige run -- python agent.py                 record it, and see how it ends
  vestige run --name nightly -- python -m agent  under a name of your own
  vestige run --no-wire -- python agent.py       without what it says to model providers
""",
    exits="the command's own; 128 + n if signal n killed it; 2 if it could not be started",
)
@click.option("--name", metavar="NAME", help="What to call the run. Default: the program.")
@click.option("--no-wire", is_flag=True, help="Do not record HTTP calls to model providers.")
@home_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(name: str | None, no_wire: bool, home: Home, command: tuple[str, ...]) -> None:
    """Run COMMAND with recording on.

    Python programs are recorded from their first moment, child processes included;
    of any other program you get how it ended. What they say to model providers over HTTP is
    recorded as it goes out and comes back. Terminal, signals and exit code are
    the command's own.
    """
    from vestige.boot import boot_environment
    from vestige.collector.supervise import run_command

    sys.exit(run_command(home, command, boot_environment(os.environ, wire=not no_wire), name))
