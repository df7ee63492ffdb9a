"""`vestige`: the group of all commands, and what happens to an error.

Commands import what they need when they run, so `vestige --help` stays quick.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from vestige._version import __version__
from vestige.doors.cli.artifacts import artifacts
from vestige.doors.cli.ask import check, compare, diff, grep, schema, sql, stats, why
from vestige.doors.cli.collect import collect, doctor
from vestige.doors.cli.debug import debug
from vestige.doors.cli.keep import pin, prune, unpin
from vestige.doors.cli.keys import keys
from vestige.doors.cli.mcp import mcp
from vestige.doors.cli.note import note, notes
from vestige.doors.cli.options import Examples
from vestige.doors.cli.read import body, list_runs, overview, show, span
from vestige.doors.cli.recover import recover
from vestige.doors.cli.replay import replay
from vestige.doors.cli.repro import repro
from vestige.doors.cli.run import run
from vestige.doors.cli.serve import serve
from vestige.doors.cli.ship import ship
from vestige.doors.cli.skill import help_component, skill
from vestige.doors.cli.transfer import export, import_runs
from vestige.doors.cli.ui import ui
from vestige.doors.cli.validate import validate
from vestige.doors.cli.view import files, outline, segments, state, transcript, trends
from vestige.errors import VestigeError


class Root(click.Group):
    """Turns our errors into one line and an exit code, and never shows a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):  # https://no-color.org, which click leaves to us
            ctx.color = False
        try:
            return super().invoke(ctx)
        except VestigeError as error:
            click.echo(f"vestige: {error}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # `vestige show | head`: the reader has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"vestige: {where}{error.strerror or error}.", err=True)
            ctx.exit(3)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        room = formatter.width - widest - _BESIDE_HELP
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (str(each.name).ljust(widest), shorten(each.help or "", room))
                        for each in commands
                    ]
                )


_BESIDE_HELP: Final = 4
"""Columns beside a command's name and its help: the indent, and the space between them."""


def shorten(help: str, room: int) -> str:
    """The first sentence of a help text, or as much of it as makes sense by itself and fits."""
    sentence = " ".join(help.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    for mark in (":", ";", *"," * sentence.count(",")):
        if len(sentence) < room:
            break
        sentence = sentence.rpartition(mark)[0] or sentence
    return f"{sentence}."


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A first session: vestige run -- python agent.py, then vestige list, then vestige show.",
)
@click.version_option(__version__, prog_name="vestige")
def cli() -> None:
    """The flight recorder and debugger for AI agents."""


SECTIONS: Final[dict[str, tuple[click.Command, ...]]] = {
    "Record": (run,),
    "Look": (list_runs, show, transcript, overview, outline, state, files, ui),
    "Find the cause": (check, why, span, body, segments, grep, diff, compare, replay),
    "Ask all runs": (stats, trends, sql, schema),
    "Keep": (doctor, collect, recover, note, notes, pin, unpin, prune),
    "Files and other tools": (import_runs, export, debug, validate, artifacts, repro),
    "For others": (serve, keys, ship, mcp, skill, help_component),
}
"""In the order of a first session, not of the alphabet."""

for command in (each for section in SECTIONS.values() for each in section):
    assert isinstance(command, Examples), f"{command.name}: every help text has examples"
    cli.add_command(command)


def main() -> None:
    """The console script."""
    cli(prog_name="vestige")
