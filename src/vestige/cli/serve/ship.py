"""`vestige ship`: what is recorded here, on to a server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from vestige.cli.manage.collect import stop_when
from vestige.cli.options import Examples, Home, home_option
from vestige.errors import ShipError, UsageError

KEY_VARIABLE = "VESTIGE_SHIP_KEY"


@click.command(
    "ship",
    cls=Examples,
    examples="""
  vestige ship --to https://vestige.example          send on what is recorded here, as it comes
  vestige ship --to https://vestige.example --once   send what is there, and go
  vestige ship --to https://vestige.example --remove keep nothing here that was sent
  vestige ship --stop                                keep nothing for a ship any more
""",
    exits="0 all was sent, 1 refused or not reached, or another ships this home, 2 usage",
)
@click.option("--to", "url", metavar="URL", help="The server: https://HOST[:PORT].")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help=f"A file with the key. Default: ${KEY_VARIABLE}.",
)
@click.option("--once", is_flag=True, help="Send what is there now, then stop.")
@click.option("--remove", is_flag=True, help="Delete a finished journal here once it was sent.")
@click.option("--stop", is_flag=True, help="This home is not shipped any more: forget what waits.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="TLS: certificates to trust, PEM.")
@click.option("--plain-http", is_flag=True, help="Allow http:// to another machine.")
@home_option
def ship(
    url: str | None,
    key_file: Path | None,
    once: bool,
    remove: bool,
    stop: bool,
    ca_file: Path | None,
    plain_http: bool,
    home: Home,
) -> None:
    """Send journals to a server as they grow, compressed, and again after failures.

    The recorded program knows nothing of it. From the first time on, journals that the local
    collector is done with are kept until they were sent, up to a bound; `--stop` ends that.

    The key stands in VESTIGE_SHIP_KEY. It is made on the server: `vestige keys add NAME --scope
    runs:write`.
    """
    from vestige.collector.outbox import is_shipped
    from vestige.fleet.client.ship import hold_ship, stop_shipping
    from vestige.fleet.client.ship_client import ShipClient

    if stop:
        if url is not None:
            raise UsageError("--stop: ends shipping, so it takes no --to.")
        stop_shipping(home)
        click.echo(f"{home.root}: not shipped any more")
        return
    if url is None:
        raise UsageError("ship: --to is missing (the URL of a `vestige serve`).")
    link = ShipClient(url, read_key(key_file), ca_file=ca_file, plain_http=plain_http)

    def say(text: str) -> None:
        click.echo(f"vestige: {text}", err=True)

    late = not is_shipped(home) and _has_runs(home)
    with hold_ship(home, link, say, remove) as held:
        if held is None:
            raise ShipError(f"{home.root}: another process ships this home already.")
        if late:
            say(
                f"{home.root}: what its store took in before this first ship is not sent. To bring a"
                " run along: `vestige export RUN --format wink -o FILE` here, `vestige import FILE`"
                " there."
            )
        stopped = stop_when(until_eof=False)
        if not once:
            click.echo(f"shipping {home.root} to {link.url}; Ctrl-C stops", err=True)
        sent = held.run(lambda seconds: not stopped.wait(seconds), once)
    click.echo(
        f"sent {sent.records} records ({sent.packed_bytes} bytes), {sent.new} of them new there"
    )
    if sent.refused or sent.too_large:
        click.echo(f"left out: {sent.refused} refused, {sent.too_large} too large", err=True)
        sys.exit(1)


def _has_runs(home: Home) -> bool:
    """Is there something in the local store? One that cannot be read is no reason not to ship."""
    from vestige.errors import VestigeError
    from vestige.store.protocol import RunFilter
    from vestige.store.sqlite.sqlite_store import SqliteStore

    if not home.store.is_file():
        return False
    try:
        with SqliteStore.open(home.store, readonly=True) as store:
            return bool(store.list_runs(RunFilter(limit=1)))
    except (VestigeError, OSError):
        return False


def read_key(path: Path | None) -> str:
    """From the file, or the variable; never from an argument, which every process can see."""
    if path is not None:
        try:
            key = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--key-file: {path}: cannot be read ({error}).") from None
        where = f"--key-file: {path}"
    else:
        key, where = os.environ.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
        if not key:
            raise UsageError(f"ship: no key. Set {KEY_VARIABLE}, or give --key-file.")
    if not key.isascii() or not key.isprintable() or " " in key or not key:
        raise UsageError(f"{where}: holds no key (expected one line, as `vestige keys add` told).")
    return key
