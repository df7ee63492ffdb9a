"""`vestige setup`: settings with which other programs send their telemetry here."""

from __future__ import annotations

import os
from pathlib import Path

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.integrations.vendors.telemetry_settings import TOOLS

NOTES = {
    "claude": "Start `vestige server start --otlp` before Claude Code. Each session is a run.",
    "codex": "Load it in the shell of Codex, then read its logs: vestige import --discover",
    "gemini": "Start `vestige server start --otlp` before Gemini CLI.",
    "opencode": "Start `vestige server start --otlp` then load the variables in OpenCode's shell.",
    "otel": "Start `vestige server start --otlp` then load the variables in the program's shell.",
}


@click.command(
    "setup",
    cls=Examples,
    examples="""
  vestige setup otel                 print the variables for any OpenTelemetry exporter
  vestige setup claude               print the settings for Claude Code
  vestige setup claude --write       write them, with a backup beside the file
  vestige setup claude --undo        restore the file as it was
""",
    exits="0 done, 2 already set up, nothing to undo, or edited since, 3 settings unreadable",
)
@click.argument("tool", type=click.Choice(TOOLS))
@click.option("--write", is_flag=True, help="Write the settings instead of printing them.")
@click.option("--undo", is_flag=True, help="Restore what --write has changed.")
@click.option(
    "--endpoint",
    default="http://127.0.0.1:4318",
    show_default=True,
    help="The server of `vestige server start --otlp`.",
)
@home_option
def setup(tool: str, write: bool, undo: bool, endpoint: str, home: Home) -> None:
    """Set up a program to send its telemetry to Vestige.

    Without --write, the settings are printed and nothing is changed. They contain a key that can
    only add runs, and that stays valid.
    """
    from vestige.integrations.vendors import settings_files
    from vestige.integrations.vendors.telemetry_settings import Places, list_changes
    from vestige.server.otlp_ports import read_otlp_key

    if write and undo:
        raise click.UsageError("--write and --undo exclude each other.")
    receipt = home.root / f"setup-{tool}.json"
    if undo:
        for path in settings_files.undo(receipt):
            click.echo(f"Restored {path}")
        return
    places = Places(Path.home(), home.root, os.environ)
    changes = list_changes(tool, places, endpoint, read_otlp_key(home))
    if write:
        for path in settings_files.apply(changes, receipt):
            click.echo(f"Wrote {path}")
    else:
        for change in changes:
            if len(changes) > 1 or tool not in ("otel", "codex"):
                click.echo(f"# {change.path}")
            click.echo(settings_files.render_change(change), nl=False)
    click.echo(NOTES[tool], err=True)
