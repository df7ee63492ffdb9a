"""`vestige store`, `vestige server`, `vestige bundle`: commands grouped by what they work on.

Each entry is also a command by itself (`vestige store prune` is `vestige prune`).
"""

from __future__ import annotations

from typing import Any, Final

import click

from vestige.cli.main import Commands, shorten

STORE: Final = {
    "status": "vestige.cli.manage.collect:doctor",
    "collect": "vestige.cli.manage.collect:collect",
    "recover": "vestige.cli.manage.recover:recover",
    "prune": "vestige.cli.manage.prune:prune",
    "pin": "vestige.cli.manage.prune:pin",
    "unpin": "vestige.cli.manage.prune:unpin",
    "schema": "vestige.cli.analyze.sql:schema",
}

SERVER: Final = {
    "start": "vestige.cli.serve.serve:serve",
    "keys": "vestige.cli.serve.keys:keys",
}

BUNDLE: Final = {
    "show": "vestige.cli.view.debug:debug",
    "merge": "vestige.cli.manage.artifacts:merge",
    "repro": "vestige.cli.diagnose.repro:repro",
}


class CommandGroup(click.Group):
    """A group whose entries are imported on first use, listed in their own order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, shorten(command.help or "", formatter.width - widest - 4))
                    for name, command in self.commands.items()
                ]
            )


def _group(name: str, paths: dict[str, str], help: str) -> click.Group:
    # click asks for a dict, and needs no more than a mapping.
    commands: Any = Commands(paths)
    return CommandGroup(name, commands=commands, help=help)


store = _group("store", STORE, "Manage the data directory: collect, recover, prune, pin.")
server = _group("server", SERVER, "Serve runs over HTTP, and manage access keys.")
bundle = _group("bundle", BUNDLE, "Show, merge and reproduce bundles.")
