"""`vestige mcp`: the debugger as tools of an MCP client."""

from __future__ import annotations

from typing import Any

import click

from vestige.cli.options import Examples, Home, home_option


def _address(ctx: Any, param: Any, value: str | None) -> tuple[str, int] | None:
    """`HOST:PORT`, also `[::1]:8765`."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is no address (expected HOST:PORT: 127.0.0.1:8765).")
    return host.strip("[]"), int(port)


@click.command(
    "mcp",
    cls=Examples,
    examples="""
  vestige mcp --install-hint             what to put into a client's configuration
  vestige mcp                            serve the client that starts this, by stdin and stdout
  vestige mcp --http 127.0.0.1:8765      serve clients on this machine by HTTP, at /mcp
""",
    exits="0 done, 2 bad address",
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    callback=_address,
    help="Streamable HTTP instead of stdio. Only on this machine.",
)
@click.option("--install-hint", is_flag=True, help="Print clients' configuration, and stop.")
@home_option
def mcp(address: tuple[str, int] | None, install_hint: bool, home: Home) -> None:
    """Offer the debugger to an MCP client: its verbs as tools, the playbook as a prompt.

    Everything is read-only. On stdio, stdout carries the protocol and nothing else.
    """
    from vestige.mcp import server as door

    if install_hint:
        click.echo(door.install_hint(home, address))
    elif address is None:
        door.serve_stdio(home)
    else:
        host, port = address
        door.serve_http(
            home, host, port, lambda url: click.echo(f"serving {url}; Ctrl-C stops", err=True)
        )
