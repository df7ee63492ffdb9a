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
from vestige.cli.options import Examples
from vestige.errors import VestigeError

SECTIONS: Final = {
    "Record": {
        "run": "vestige.cli.record.run:run",
    },
    "Look": {
        "list": "vestige.cli.view.read:list_runs",
        "show": "vestige.cli.view.read:show",
        "follow": "vestige.cli.view.follow:follow",
        "transcript": "vestige.cli.view.more_views:transcript",
        "overview": "vestige.cli.view.read:overview",
        "outline": "vestige.cli.view.more_views:outline",
        "state": "vestige.cli.view.more_views:state",
        "files": "vestige.cli.view.more_views:files",
        "ui": "vestige.cli.view.ui:ui",
    },
    "Find the cause": {
        "check": "vestige.cli.diagnose.ask:check",
        "why": "vestige.cli.diagnose.ask:why",
        "stacks": "vestige.cli.diagnose.stacks:stacks",
        "span": "vestige.cli.view.read:span",
        "body": "vestige.cli.view.read:body",
        "segments": "vestige.cli.view.more_views:segments",
        "grep": "vestige.cli.diagnose.ask:grep",
        "diff": "vestige.cli.diagnose.ask:diff",
        "compare": "vestige.cli.diagnose.ask:compare",
        "replay": "vestige.cli.record.replay:replay",
    },
    "Ask all runs": {
        "stats": "vestige.cli.diagnose.ask:stats",
        "trends": "vestige.cli.view.more_views:trends",
        "sql": "vestige.cli.diagnose.ask:sql",
        "schema": "vestige.cli.diagnose.ask:schema",
    },
    "Keep": {
        "doctor": "vestige.cli.manage.collect:doctor",
        "collect": "vestige.cli.manage.collect:collect",
        "recover": "vestige.cli.manage.recover:recover",
        "note": "vestige.cli.manage.note:note",
        "notes": "vestige.cli.manage.note:notes",
        "pin": "vestige.cli.manage.prune:pin",
        "unpin": "vestige.cli.manage.prune:unpin",
        "prune": "vestige.cli.manage.prune:prune",
    },
    "Files and other tools": {
        "import": "vestige.cli.manage.transfer:import_runs",
        "export": "vestige.cli.manage.transfer:export",
        "debug": "vestige.cli.view.debug:debug",
        "validate": "vestige.cli.manage.validate:validate",
        "artifacts": "vestige.cli.manage.artifacts:artifacts",
        "repro": "vestige.cli.diagnose.repro:repro",
    },
    "For others": {
        "serve": "vestige.cli.serve.serve:serve",
        "keys": "vestige.cli.serve.keys:keys",
        "ship": "vestige.cli.serve.ship:ship",
        "mcp": "vestige.cli.serve.mcp:mcp",
        "skill": "vestige.cli.diagnose.skill:skill",
        "help": "vestige.cli.diagnose.skill:help_component",
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
