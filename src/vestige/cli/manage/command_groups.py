"""`vestige store`, `vestige server`, `vestige bundle`: commands grouped by what they work on.

Most entries are also commands by themselves (`vestige prune` is `vestige store prune`).
"""

from __future__ import annotations

from typing import Any, Final

import click

from vestige.cli.main import Commands, shorten

STORE: Final = {
    "status": "vestige.cli.manage.clickhouse_store:status",
    "init": "vestige.cli.manage.clickhouse_store:init",
    "upgrade": "vestige.cli.manage.clickhouse_store:upgrade",
    "copy": "vestige.cli.manage.clickhouse_store:copy",
    "grant": "vestige.cli.manage.clickhouse_store:grant",
    "load": "vestige.cli.manage.load_segments:load",
    "collect": "vestige.cli.manage.collect:collect",
    "recover": "vestige.cli.manage.recover:recover",
    "prune": "vestige.cli.manage.prune:prune",
    "pin": "vestige.cli.manage.pin:pin",
    "unpin": "vestige.cli.manage.pin:unpin",
    "schema": "vestige.cli.analyze.sql:schema",
}

SERVER: Final = {
    "start": "vestige.cli.serve.serve:serve",
    "keys": "vestige.cli.serve.keys:keys",
    "ship": "vestige.cli.serve.ship:ship",
}

BUNDLE: Final = {
    "show": "vestige.cli.view.debug:debug",
    "validate": "vestige.cli.manage.validate:validate",
    "merge": "vestige.cli.manage.merge_artifacts:merge",
    "repro": "vestige.cli.diagnose.repro:repro",
}


class CommandGroup(click.Group):
    """A group whose entries are imported on first use, listed in their own order."""

    exits = "that of the command, 2 usage"

    def __init__(self, name: str, paths: dict[str, str], help: str, examples: str) -> None:
        commands: Any = Commands(paths)  # click types a dict, and only reads it
        super().__init__(name, commands=commands, help=help)
        self.examples = examples.strip("\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\nExamples:\n{self.examples}\n\nExit status: {self.exits}\n")

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


store = CommandGroup(
    "store",
    STORE,
    "Manage the data directory: collect, recover, prune, pin.",
    """
  vestige store status                where runs are stored, and whether any are missing
  vestige store prune --max-age 7d    delete runs older than a week
  vestige store recover               finalize runs of crashed processes
  vestige store init --store clickhouse://db:8123/vestige    make a store on a server
""",
)
server = CommandGroup(
    "server",
    SERVER,
    "Serve runs over HTTP, manage keys, send runs to a server.",
    """
  vestige server start                             serve this machine
  vestige server keys add ci --scope runs:read     create an access key
  vestige server ship --to https://example.com     send recorded runs to a server
""",
)
bundle = CommandGroup(
    "bundle",
    BUNDLE,
    "Show, check, merge and reproduce bundles.",
    """
  vestige bundle show crash.wink                  look into a debug bundle
  vestige bundle validate run.json                check a bundle, or a run of another format
  vestige bundle merge shard-1 shard-2 -o all     merge artifact bundles
  vestige bundle repro tests/artifacts/shop/...   run failed tests again
""",
)
