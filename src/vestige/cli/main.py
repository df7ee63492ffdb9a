"""`vestige`: the group of all commands, and how errors are printed.

A command's module is imported when the command is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final

import click

from vestige._version import __version__
from vestige.errors import VestigeError

SECTIONS: Final = {
    "Record": {
        "run": "vestige.cli.record.run:run",
        "replay": "vestige.cli.record.replay:replay",
    },
    "View": {
        "list": "vestige.cli.view.list:list_runs",
        "show": "vestige.cli.view.show:show",
        "span": "vestige.cli.view.span:span",
        "body": "vestige.cli.view.body:body",
        "ui": "vestige.cli.view.ui:ui",
    },
    "Diagnose": {
        "check": "vestige.cli.diagnose.check:check",
        "why": "vestige.cli.diagnose.why:why",
        "explain": "vestige.cli.diagnose.explain:explain",
        "diff": "vestige.cli.diagnose.diff:diff",
        "compare": "vestige.cli.diagnose.compare:compare",
        "groups": "vestige.cli.diagnose.groups:groups",
        "grep": "vestige.cli.diagnose.grep:grep",
        "stacks": "vestige.cli.diagnose.stacks:stacks",
    },
    "Analyze": {
        "stats": "vestige.cli.analyze.stats:stats",
        "sql": "vestige.cli.analyze.sql:sql",
    },
    "Improve": {
        "gate": "vestige.cli.improve.gate:gate",
        "watch": "vestige.cli.improve.watch:watch",
        "dataset": "vestige.cli.improve.dataset:dataset",
    },
    "Manage": {
        "doctor": "vestige.cli.manage.doctor:doctor",
        "note": "vestige.cli.manage.note:note",
        "import": "vestige.cli.manage.import_export:import_runs",
        "export": "vestige.cli.manage.import_export:export",
        "bundle": "vestige.cli.manage.command_groups:bundle",
        "store": "vestige.cli.manage.command_groups:store",
    },
    "Serve & integrate": {
        "server": "vestige.cli.manage.command_groups:server",
        "mcp": "vestige.cli.serve.mcp:mcp",
        "setup": "vestige.cli.serve.setup_telemetry:setup",
        "skill": "vestige.cli.diagnose.skill:skill",
    },
}
"""Every command with its module and function, in the order in which a newcomer needs them."""

ALIASES: Final = {
    "overview": "vestige.cli.view.overview:overview",
    "transcript": "vestige.cli.view.transcript:transcript",
    "outline": "vestige.cli.view.outline:outline",
    "state": "vestige.cli.view.state:state",
    "files": "vestige.cli.view.files:files",
    "notes": "vestige.cli.manage.note:notes",
    "follow": "vestige.cli.view.follow:follow",
    "segments": "vestige.cli.view.span:segments",
    "trends": "vestige.cli.analyze.stats:trends",
    "schema": "vestige.cli.analyze.sql:schema",
    "collect": "vestige.cli.manage.collect:collect",
    "recover": "vestige.cli.manage.recover:recover",
    "pin": "vestige.cli.manage.pin:pin",
    "unpin": "vestige.cli.manage.pin:unpin",
    "prune": "vestige.cli.manage.prune:prune",
    "debug": "vestige.cli.view.debug:debug",
    "validate": "vestige.cli.manage.validate:validate",
    "artifacts": "vestige.cli.manage.merge_artifacts:artifacts",
    "repro": "vestige.cli.diagnose.repro:repro",
    "serve": "vestige.cli.serve.serve:serve",
    "keys": "vestige.cli.serve.keys:keys",
    "ship": "vestige.cli.serve.ship:ship",
    "help": "vestige.cli.diagnose.skill:help_component",
}
"""Commands that work and are not listed: each is also a view, or an entry of a group."""


class Commands(Mapping[str, click.Command]):
    """Commands by name, each imported on first use: most calls need only one."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = self._paths[name].partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


LISTED: Final = {name: path for section in SECTIONS.values() for name, path in section.items()}


class Root(click.Group):
    """Print a `VestigeError` as one line and exit with its code; never show a traceback."""

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
            # `vestige show | head`: the reader closed the pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"vestige: {where}{error.strerror or error}.", err=True)
            ctx.exit(3)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(len(name) for names in self.sections.values() for name in names)
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
    """Return the first sentence of a help text, shortened at a colon or comma until it fits."""
    sentence = " ".join(help.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    for mark in (":", ";", *"," * sentence.count(",")):
        if len(sentence) < room:
            break
        sentence = sentence.rpartition(mark)[0] or sentence
    return f"{sentence}."


@click.group(
    cls=Root,
    commands=Commands({**LISTED, **ALIASES}),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Quick start:
  vestige run -- python agent.py
  vestige list
  vestige show""",
)
@click.version_option(__version__, prog_name="vestige")
def cli() -> None:
    """The flight recorder and debugger for AI agents."""


def main() -> None:
    """Run the console script."""
    cli(prog_name="vestige")
