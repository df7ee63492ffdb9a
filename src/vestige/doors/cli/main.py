"""`vestige`: the group of all commands, and what happens to an error.

A command's module is imported when it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final

import click

from vestige._version import __version__
from vestige.doors.cli.options import Examples
from vestige.errors import VestigeError

SECTIONS: Final = {
    "Record": {"run": "run"},
    "Look": {
        "list": "read.list_runs", "show": "read", "follow": "follow", "transcript": "view",
        "overview": "read", "outline": "view", "state": "view", "files": "view", "ui": "ui",
    },
    "Find the cause": {
        "check": "ask", "why": "ask", "stacks": "stacks", "span": "read", "body": "read", "segments": "view",
        "grep": "ask", "diff": "ask", "compare": "ask", "replay": "replay",
    },
    "Ask all runs": {"stats": "ask", "trends": "view", "sql": "ask", "schema": "ask"},
    "Keep": {
        "doctor": "collect", "collect": "collect", "recover": "recover", "note": "note",
        "notes": "note", "pin": "keep", "unpin": "keep", "prune": "keep",
    },
    "Files and other tools": {
        "import": "transfer.import_runs", "export": "transfer", "debug": "debug",
        "validate": "validate", "artifacts": "artifacts", "repro": "repro",
    },
    "For others": {
        "serve": "serve", "keys": "keys", "ship": "ship", "mcp": "mcp", "skill": "skill",
        "help": "skill.help_component",
    },
}  # fmt: skip
"""Every command and its module (with its name there, if it has another), in the order of a first
session, not of the alphabet."""


class Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is asked for: most calls need only one."""

    _modules: Final = {name: where for part in SECTIONS.values() for name, where in part.items()}

    def __getitem__(self, name: str) -> click.Command:
        module, _, inside = self._modules[name].partition(".")
        found = getattr(import_module(f"vestige.doors.cli.{module}"), inside or name)
        assert isinstance(found, Examples), f"{name}: every help text has examples"
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Root(click.Group):
    """Turns our errors into one line and an exit code, and never shows a traceback."""

    sections: ClassVar[Mapping[str, Iterable[str]]] = SECTIONS

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
        for section, names in self.sections.items():
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
