"""`vestige serve`: the home over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from vestige.cli.options import Examples, Home, home_option


@click.command(
    "serve",
    cls=Examples,
    examples="""
  vestige serve                                   on this machine, at the URL that it prints
  vestige serve --port 0                          on any free port
  vestige keys add ci --scope runs:read           then others may come in with the key:
  vestige serve --host 0.0.0.0 --cert server.pem --key server.key
""",
    exits="0 ended, 2 bad address, or no keys or no TLS for a public one, 3 unreadable store",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="The port; 0: any that is free.",
)
@click.option("--cert", type=click.Path(path_type=Path), help="TLS: the certificate, PEM.")
@click.option("--key", type=click.Path(path_type=Path), help="TLS: its private key, PEM.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Serve a public address without TLS: behind a proxy or on a network that encrypts.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A name by which clients ask for this server (Host), e.g. behind a proxy. Repeatable.",
)
@click.option("--no-collect", is_flag=True, help="Leave taking journals in to somebody else.")
@click.option("--demo-workflows", is_flag=True, help="OpenWOP: let conformance suites start runs.")
@click.option("--no-log", is_flag=True, help="No line on stderr for each request.")
@home_option
def serve(
    host: str,
    port: int,
    cert: Path | None,
    key: Path | None,
    insecure: bool,
    names: tuple[str, ...],
    no_collect: bool,
    no_log: bool,
    demo_workflows: bool,
    home: Home,
) -> None:
    """Serve the home's runs over HTTP: the verbs as JSON, live updates, OpenWOP, the viewer.

    Without keys (`vestige keys`), only this machine is served, to whoever has the URL that is
    printed. With keys, to whoever has one. Journals are taken in meanwhile.
    """
    from vestige.server.access_log import Log
    from vestige.server.run_server import make_server
    from vestige.server.run_server import serve as serve_http

    server = make_server(
        home,
        host,
        names=names,
        log=None if no_log else Log(),
        demo_workflows=demo_workflows,
    )
    serve_http(
        server,
        host,
        port,
        cert=cert,
        key=key,
        insecure=insecure,
        collect=not no_collect,
        ready=lambda url: click.echo(f"serving {url}", err=True),
    )
