"""`vestige`: the group of all commands, and what happens to an error.

A command's module is imported when it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import click

from vestige._version import __version__
from vestige.doors.cli.options import Examples
from vestige.errors import VestigeError

SECTIONS: Final = {
    "Record": {
        "run": "vestige.doors.cli.run:run",
    },
    "Look": {
        "list": "vestige.doors.cli.read:list_runs",
        "show": "vestige.doors.cli.read:show",
        "follow": "vestige.doors.cli.follow:follow",
        "transcript": "vestige.doors.cli.view:transcript",
        "overview": "vestige.doors.cli.read:overview",
        "outline": "vestige.doors.cli.view:outline",
        "state": "vestige.doors.cli.view:state",
        "files": "vestige.doors.cli.view:files",
        "ui": "vestige.doors.cli.ui:ui",
    },
    "Find the cause": {
        "check": "vestige.doors.cli.ask:check",
        "why": "vestige.doors.cli.ask:why",
        "stacks": "vestige.doors.cli.stacks:stacks",
        "span": "vestige.doors.cli.read:span",
        "body": "vestige.doors.cli.read:body",
        "segments": "vestige.doors.cli.view:segments",
        "grep": "vestige.doors.cli.ask:grep",
        "diff": "vestige.doors.cli.ask:diff",
        "compare": "vestige.doors.cli.ask:compare",
        "replay": "vestige.doors.cli.replay:replay",
    },
    "Ask all runs": {
        "stats": "vestige.doors.cli.ask:stats",
        "trends": "vestige.doors.cli.view:trends",
        "sql": "vestige.doors.cli.ask:sql",
        "schema": "vestige.doors.cli.ask:schema",
    },
    "Keep": {
        "doctor": "vestige.doors.cli.collect:doctor",
        "collect": "vestige.doors.cli.collect:collect",
        "recover": "vestige.doors.cli.recover:recover",
        "note": "vestige.doors.cli.note:note",
        "notes": "vestige.doors.cli.note:notes",
        "pin": "vestige.doors.cli.keep:pin",
        "unpin": "vestige.doors.cli.keep:unpin",
        "prune": "vestige.doors.cli.keep:prune",
    },
    "Files and other tools": {
        "import": "vestige.doors.cli.transfer:import_runs",
        "export": "vestige.doors.cli.transfer:export",
        "debug": "vestige.doors.cli.debug:debug",
        "validate": "vestige.doors.cli.validate:validate",
        "artifacts": "vestige.doors.cli.artifacts:artifacts",
        "repro": "vestige.doors.cli.repro:repro",
    },
    "For others": {
        "serve": "vestige.doors.cli.serve:serve",
        "keys": "vestige.doors.cli.keys:keys",
        "ship": "vestige.doors.cli.ship:ship",
        "mcp": "vestige.doors.cli.mcp:mcp",
        "skill": "vestige.doors.cli.skill:skill",
        "help": "vestige.doors.cli.skill:help_component",
    },
}
"""Every command with its module and function, in the order in which a newcomer needs them."""


class Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is asked for: most calls need only one."""

    _modules: Final = {name: where for part in SECTIONS.values() for name, where in part.items()}

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = self._modules[name].partition(":")
        found = getattr(import_module(module), function)
        assert isinstance(found, Examples), f"{name}: every help text has examples"
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


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
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name.ljust(widest), shorten(self.commands[name].help or "", room))
                        for name in names
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
    commands=Commands(),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A first session: vestige run -- python agent.py, then vestige list, then vestige show.",
)
@click.version_option(__version__, prog_name="vestige")
def cli() -> None:
    """The flight recorder and debugger for AI agents."""


def main() -> None:
    """The console script."""
    cli(prog_name="vestige")
