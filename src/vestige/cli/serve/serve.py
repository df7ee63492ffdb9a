"""`vestige server start`: runs over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.cli.serve.otlp_option import otlp_option, print_otlp

if TYPE_CHECKING:
    from vestige.server.otlp_ports import OtlpPorts


@click.command(
    "serve",
    cls=Examples,
    examples="""
  vestige server start                                   on this machine, at the printed URL
  vestige server start --port 0                          on any free port
  vestige server start --otlp                            also on OpenTelemetry's ports 4318 and 4317
  vestige server start --store clickhouse://db:8123/vestige    with the runs of a team
  vestige server keys add ci --scope runs:read           create a key, then serve others:
  vestige server start --host 0.0.0.0 --cert server.pem --key server.key
""",
    exits="0 stopped, 2 bad address, or public address without keys or TLS, 3 store unreadable",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="The port; 0 for any free port.",
)
@click.option("--cert", type=click.Path(path_type=Path), help="TLS certificate (PEM).")
@click.option("--key", type=click.Path(path_type=Path), help="TLS private key (PEM).")
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow a public address without TLS, e.g. behind a TLS proxy.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Accept this Host header, e.g. behind a proxy. Repeatable.",
)
@click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    help="Store runs on a server: clickhouse://HOST:8123/DATABASE (default: the setting `store`).",
)
@click.option(
    "--segments",
    metavar="PLACE",
    help="Write accepted records as files to s3://BUCKET/PREFIX or a directory, for"
    " `vestige store load`.",
)
@otlp_option
@click.option("--no-collect", is_flag=True, help="Do not import journals.")
@click.option(
    "--demo-workflows", is_flag=True, help="(OpenWOP) Allow conformance suites to start runs."
)
@click.option("--no-log", is_flag=True, help="Disable request logging.")
@home_option
def serve(
    host: str,
    port: int,
    cert: Path | None,
    key: Path | None,
    insecure: bool,
    names: tuple[str, ...],
    address: str | None,
    segments: str | None,
    otlp: OtlpPorts | None,
    no_collect: bool,
    no_log: bool,
    demo_workflows: bool,
    home: Home,
) -> None:
    """Serve runs over HTTP: JSON API, live updates, OpenWOP, web viewer.

    Without access keys (`vestige server keys`), only this machine is served, and the printed URL
    contains the token. With keys, every client needs one. Journals are imported continuously.
    """
    from vestige.server.stderr_json_log import Log
    from vestige.settings import find_segments

    if address is not None:
        os.environ["VESTIGE_STORE"] = address  # also for the processes that ingest and collect
    if segments is not None:
        os.environ["VESTIGE_SEGMENTS"] = segments  # for the process that ingests
        find_segments(home)  # reports a place that is not valid
    from vestige.server.run_server import make_server
    from vestige.server.run_server import serve as serve_http

    server = make_server(
        home,
        host,
        names=names,
        log=None if no_log else Log(),
        demo_workflows=demo_workflows,
    )

    def ready(url: str) -> None:
        click.echo(f"Vestige is running at {url} (Ctrl-C to stop)", err=True)
        if otlp is not None:
            print_otlp(otlp, host)

    serve_http(
        server,
        host,
        port,
        cert=cert,
        key=key,
        insecure=insecure,
        collect=not no_collect,
        otlp=otlp,
        ready=ready,
    )
