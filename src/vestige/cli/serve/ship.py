"""`vestige server ship`: send recorded runs to a server."""

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
  vestige server ship --to https://vestige.example          send new records continuously
  vestige server ship --to https://vestige.example --once   send once and exit
  vestige server ship --to https://vestige.example --remove delete journals once they are sent
  vestige server ship --stop                                stop shipping
""",
    exits="0 sent, 1 refused or server not reachable, or another process ships already, 2 usage",
)
@click.option("--to", "url", metavar="URL", help="Server URL: https://HOST[:PORT].")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help=f"File with the access key (default: ${KEY_VARIABLE}).",
)
@click.option("--once", is_flag=True, help="Send what is there now, then exit.")
@click.option("--remove", is_flag=True, help="Delete a finished journal once it is sent.")
@click.option("--stop", is_flag=True, help="Stop shipping and discard the queue.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="TLS certificates to trust (PEM).")
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
    """Send recorded runs to a server, continuously and compressed.

    Failed requests are retried, and recorded programs are not affected. Once a data directory is
    shipped, its journals are queued until they are sent, up to a limit; `--stop` ends this.

    Set the access key in VESTIGE_SHIP_KEY. Create it on the server: `vestige server keys add NAME
    --scope runs:write`.
    """
    from vestige.collector.outbox import is_shipped
    from vestige.fleet.client.ship import hold_ship, stop_shipping
    from vestige.fleet.client.ship_client import ShipClient

    if stop:
        if url is not None:
            raise UsageError("--stop cannot be combined with --to.")
        stop_shipping(home)
        click.echo(f"{home.root}: shipping stopped")
        return
    if url is None:
        raise UsageError("ship: --to is missing (the URL of a `vestige server start`).")
    link = ShipClient(url, read_key(key_file), ca_file=ca_file, plain_http=plain_http)

    def report(text: str) -> None:
        click.echo(f"vestige: {text}", err=True)

    late = not is_shipped(home) and _has_runs(home)
    with hold_ship(home, link, report, remove) as shipper:
        if shipper is None:
            raise ShipError(
                f"{home.root}: another process is shipping this data directory already."
            )
        if late:
            report(
                f"{home.root}: runs recorded before the first ship are not sent. To copy one:"
                " `vestige export RUN --format wink` here, `vestige import FILE` on the server."
            )
        stopped = stop_when(until_eof=False)
        if not once:
            click.echo(f"Shipping {home.root} to {link.url} (Ctrl-C to stop)", err=True)
        sent = shipper.run(lambda seconds: not stopped.wait(seconds), once)
    click.echo(
        f"Sent {sent.records} records ({sent.packed_bytes} bytes), {sent.new} new on the server"
    )
    if sent.refused or sent.too_large:
        click.echo(f"Not sent: {sent.refused} refused, {sent.too_large} too large", err=True)
        sys.exit(1)


def _has_runs(home: Home) -> bool:
    """Return whether the local store has runs; False if it cannot be read."""
    from vestige.errors import VestigeError
    from vestige.settings import find_store
    from vestige.store.open import open_store
    from vestige.store.protocol import RunFilter

    if isinstance(location := find_store(home), Path) and not location.is_file():
        return False
    try:
        with open_store(find_store(home), readonly=True) as store:
            return bool(store.list_runs(RunFilter(limit=1)))
    except (VestigeError, OSError):
        return False


def read_key(path: Path | None) -> str:
    """Read the key from the file or the variable. Arguments are visible to all processes."""
    if path is not None:
        try:
            key = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--key-file: {path}: cannot be read ({error}).") from None
        where = f"--key-file: {path}"
    else:
        key, where = os.environ.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
        if not key:
            raise UsageError(f"ship: no access key. Set {KEY_VARIABLE}, or use --key-file.")
    if not key.isascii() or not key.isprintable() or " " in key or not key:
        raise UsageError(
            f"{where}: not an access key (expected one line, as printed by"
            " `vestige server keys add`)."
        )
    return key
