"""Offer to import the sessions of coding agents that are on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vestige.cli.options import Home
    from vestige.store.protocol import Store
    from vestige.transfer.agent_sessions import DiscoveredLogs

COMMAND = "vestige import --discover --yes"


def discover_and_import(home: Home, *, yes: bool) -> int:
    """List what is on this machine, ask, and import. Return the exit status."""
    from vestige.settings import find_store
    from vestige.store.open import open_store
    from vestige.transfer.agent_homes import find_agent_homes
    from vestige.transfer.agent_sessions import discover_logs

    homes = find_agent_homes(os.environ)
    if not isinstance(location := find_store(home), Path) or location.is_file():
        with open_store(location, readonly=True) as store:
            found = discover_logs(store, homes)
    else:
        found = discover_logs(None, homes)
    if not found:
        click.echo("No sessions of coding agents found on this machine.")
        return 0
    click.echo("\n".join(render_table(found)))
    for logs in found:
        if logs.problem:
            click.echo(f"vestige: {logs.problem}", err=True)
    new = sum(len(logs.new) for logs in found)
    if not new:
        click.echo("All sessions are imported.")
        return 0
    if not yes and not _confirm(new):
        return 0
    home.make()
    with open_store(find_store(home)) as store:
        return _import(store, found)


def offer_import(home: Home) -> None:
    """Point out sessions on this machine if the home has no runs; on a terminal, offer them."""
    if home.store.is_file() or home.journal.is_dir():
        return
    from vestige.transfer.agent_homes import find_agent_homes
    from vestige.transfer.agent_sessions import discover_logs

    found = discover_logs(None, find_agent_homes(os.environ))
    if not any(logs.sessions for logs in found):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        discover_and_import(home, yes=False)
        return
    count = sum(len(logs.sessions) for logs in found)
    agents = ", ".join(dict.fromkeys(logs.home.agent for logs in found))
    click.echo(f"vestige: found {count} sessions of {agents}. To import them: {COMMAND}", err=True)


def _confirm(new: int) -> bool:
    from vestige.query import formatting

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"To import them: {COMMAND}")
        return False
    return click.confirm(f"Import {formatting.pluralize(new, 'session')}?", err=True)


def _import(store: Store, found: Sequence[DiscoveredLogs]) -> int:
    from vestige.cli.manage.import_export import print_problems
    from vestige.cli.progress import ProgressBar
    from vestige.query import formatting
    from vestige.transfer.agent_sessions import import_logs

    failed = 0
    for logs in found:
        if not logs.new:
            continue
        sessions = records = 0
        with ProgressBar(f"Importing {logs.home.agent}", len(logs.new)) as bar:
            for result in import_logs(store, logs.new):
                sessions += result.run_id is not None
                failed += result.run_id is None
                records += result.records
                print_problems(result, bar)
                bar.advance()
        counted = formatting.pluralize(records, "new record")
        click.echo(f"{logs.home.agent}: {formatting.pluralize(sessions, 'session')}, {counted}")
    return 1 if failed else 0


def render_table(found: Sequence[DiscoveredLogs]) -> list[str]:
    """Return what was found, a line for each agent."""
    rows = [("AGENT", "SESSIONS", "NEW", "SIZE", "SINCE", "PATH")]
    rows += [
        (
            logs.home.agent,
            str(len(logs.sessions)),
            str(len(logs.new)),
            _format_size(logs.size_bytes),
            _format_day(logs.since_ns),
            _shorten(logs.home.path),
        )
        for logs in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(
            cell.rjust(width) if column in (1, 2, 3) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row[:5], widths, strict=True))
        )
        + f"  {row[5]}"
        for row in rows
    ]


def _format_size(count: int) -> str:
    if count < 1_000_000:
        return f"{count / 1000:.0f} kB"
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def _format_day(time_ns: int) -> str:
    from vestige.formats.times_and_outcomes import render_time

    return render_time(time_ns)[:10]


def _shorten(path: Path) -> str:
    user = os.environ.get("HOME", "")
    return f"~{str(path)[len(user) :]}" if user and path.is_relative_to(user) else str(path)
