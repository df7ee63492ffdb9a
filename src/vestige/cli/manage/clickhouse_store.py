"""`vestige store init`, `upgrade`, `status`, `copy`, `grant`: a store on a ClickHouse server."""

from __future__ import annotations

import json
import sys

import click

from vestige.cli.options import Examples, F, Home, home_option
from vestige.cli.print_answer import answer_options
from vestige.errors import UsageError


def _address_option(function: F) -> F:
    return click.option(
        "--store",
        "address",
        metavar="ADDRESS",
        help="clickhouse://HOST:8123/DATABASE (default: the setting `store`).",
    )(function)


def _cluster_options(function: F) -> F:
    for option in (
        click.option("--print", "print_only", is_flag=True, help="Print the SQL; change nothing."),
        click.option("--sharding-key", default="", help="Spread rows over shards by this key."),
        click.option("--storage-policy", default="", help="Storage policy, e.g. with an S3 disk."),
        click.option("--cluster", default="", help="Make replicated tables on this cluster."),
    ):
        function = option(function)
    return function


@click.command(
    "init",
    cls=Examples,
    examples="""
  vestige store init --store clickhouse://db:8123/vestige
  vestige store init --store clickhouse://db/vestige --cluster main --print
""",
    exits="0 done, 2 bad address, 3 server unreachable",
)
@_address_option
@_cluster_options
@home_option
def init(
    address: str | None,
    cluster: str,
    storage_policy: str,
    sharding_key: str,
    print_only: bool,
    home: Home,
) -> None:
    """Make the tables of a store on a ClickHouse server.

    Run it once before the first server starts. Tables that exist stay unchanged.
    """
    from vestige.store.open import make_server_store, render_server_schema

    where = _find_address(home, address)
    if print_only:
        text = render_server_schema(
            where, cluster=cluster, storage_policy=storage_policy, sharding_key=sharding_key
        )
        click.echo(text)
        return
    before, after = make_server_store(
        where, cluster=cluster, storage_policy=storage_policy, sharding_key=sharding_key
    )
    done = "was up to date" if before == after else "made" if not before else "upgraded"
    click.echo(f"Store {done} (version {after}).")


@click.command(
    "upgrade",
    cls=Examples,
    examples="""
  vestige store upgrade --store clickhouse://db:8123/vestige
""",
    exits="0 done, 2 bad address, 3 server unreachable or store newer than this version",
)
@_address_option
@home_option
def upgrade(address: str | None, home: Home) -> None:
    """Upgrade the tables of a store on a ClickHouse server to this version."""
    from vestige.store.open import make_server_store

    before, after = make_server_store(_find_address(home, address))
    click.echo(
        f"Store is up to date (version {after})."
        if before == after
        else f"Store upgraded from version {before} to {after}."
    )


@click.command(
    "status",
    cls=Examples,
    examples="""
  vestige store status                                      the data directory, like doctor
  vestige store status --store clickhouse://db:8123/vestige   a store on a server
""",
    exits="0 healthy, 1 problems, 2 bad address, 3 unreadable",
)
@_address_option
@answer_options
@click.pass_context
def status(
    ctx: click.Context, address: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show where runs are stored, and whether any are missing."""
    from vestige.cli.manage.doctor import doctor

    if address is None:
        ctx.invoke(doctor, home=home, as_json=as_json, budget=budget)
        return
    import msgspec

    from vestige.query import formatting
    from vestige.store.open import read_server_status

    found = read_server_status(_find_address(home, address))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        click.echo(f"Store       {found.address}")
        click.echo(f"ClickHouse  {found.server_version}")
        if not found.schema_version:
            click.echo("No store. Run `vestige store init`.")
        else:
            click.echo(f"Version     {found.schema_version} (expected {found.expected_version})")
            click.echo(f"Commits     {found.commits} ({found.failed_attempts} failed attempts)")
            size = formatting.size(found.bytes_on_disk)
            click.echo(f"Rows        {found.rows} in {found.parts} parts, {size}")
            click.echo(f"Disk free   {formatting.size(found.disk_free_bytes)}")
        for problem in found.problems:
            click.echo(f"Problem: {problem}")
    sys.exit(0 if found.schema_version and not found.problems else 1)


def _find_address(home: Home, address: str | None) -> str:
    """Return an address from the option or the settings. Raise UsageError if there is none."""
    from vestige.settings import find_store

    found = address or find_store(home)
    if not isinstance(found, str):
        raise UsageError(
            "store: no address of a server (expected --store clickhouse://HOST:8123/DATABASE, or"
            " the setting `store`). A store in a file needs no set-up."
        )
    return found


@click.command(
    "copy",
    cls=Examples,
    examples="""
  vestige store copy ~/.vestige/store.db clickhouse://db:8123/vestige
""",
    exits="0 copied and verified, 2 bad address or target not empty, 3 a row differs",
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--no-verify", is_flag=True, help="Do not compare the copy with its source.")
def copy(source: str, target: str, no_verify: bool) -> None:
    """Copy the runs of a SQLite file to a store on a ClickHouse server.

    A copy that was interrupted goes on when the command is repeated. Stop the servers and
    collectors of both stores first.
    """
    from pathlib import Path

    from vestige.store.open import copy_to_server, verify_server_copy

    path = Path(source).expanduser()
    if not path.is_file():
        raise UsageError(f"{source}: not a file (expected a store.db).")
    for progress in copy_to_server(path, target):
        click.echo(f"{progress.table}: {progress.rows} rows", err=True)
    if no_verify:
        click.echo("Copied, not verified.")
        return
    counts = verify_server_copy(path, target)
    click.echo("Copied and verified: " + ", ".join(f"{n[0]} {name}" for name, n in counts.items()))


@click.command(
    "grant",
    cls=Examples,
    examples="""
  vestige store grant acme grafana_acme --print
  vestige store grant acme grafana_acme --store clickhouse://db:8123/vestige
""",
    exits="0 done, 2 bad address or name, 3 server unreachable or not allowed",
)
@click.argument("tenant")
@click.argument("user")
@click.option("--print", "print_only", is_flag=True, help="Print the SQL; change nothing.")
@_address_option
@home_option
def grant(tenant: str, user: str, print_only: bool, address: str | None, home: Home) -> None:
    """Let a user of ClickHouse read the rows of one tenant, by row policies.

    For dashboards and notebooks that query the database themselves. The user must exist, and
    Vestige's own user needs the right to create row policies.
    """
    from vestige.store.open import grant_on_server

    text = grant_on_server(_find_address(home, address), tenant, user, run=not print_only)
    click.echo(text if print_only else f"{user} can read the rows of {tenant}.")
