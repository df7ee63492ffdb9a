"""`vestige mcp`: the debugger as an MCP server."""

from __future__ import annotations

from typing import Any

import click

from vestige.cli.options import Examples, Home, home_option


def _address(ctx: Any, param: Any, value: str | None) -> tuple[str, int] | None:
    """Parse `HOST:PORT`, including `[::1]:8765`."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(
            f"{value!r} is not an address (expected HOST:PORT, such as 127.0.0.1:8765)."
        )
    return host.strip("[]"), int(port)


@click.command(
    "mcp",
    cls=Examples,
    examples="""
  vestige mcp --install-hint             print the configuration for clients
  vestige mcp                            serve over stdin and stdout, started by the client
  vestige mcp --http 127.0.0.1:8765      serve clients on this machine over HTTP, at /mcp
""",
    exits="0 done, 2 bad address",
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    callback=_address,
    help="Use streamable HTTP instead of stdio (this machine only).",
)
@click.option("--install-hint", is_flag=True, help="Print the configuration for clients and exit.")
@home_option
def mcp(address: tuple[str, int] | None, install_hint: bool, home: Home) -> None:
    """Run an MCP server.

    Its tools are the query commands, its prompts the playbooks of `vestige skill`. All tools are
    read-only.
    """
    from vestige.mcp import server

    if install_hint:
        click.echo(server.install_hint(home, address))
    elif address is None:
        server.serve_stdio(home)
    else:
        host, port = address
        server.serve_http(
            home,
            host,
            port,
            lambda url: click.echo(f"Vestige is running at {url} (Ctrl-C to stop)", err=True),
        )
