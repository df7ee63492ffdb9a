"""`vestige ui`: the web viewer."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.cli.serve.otlp_option import otlp_option, print_otlp
from vestige.errors import UnreadableError, UsageError

if TYPE_CHECKING:
    from vestige.server.otlp_ports import OtlpPorts

BROWSER_S: Final = 3.0
"""Time for a browser to read the launch file of a viewer that another process serves."""


@click.command(
    "ui",
    cls=Examples,
    examples="""
  vestige ui                           all runs
  vestige ui r7                        one run
  vestige ui crash.wink                a file or folder of any supported format
  vestige ui --no-browser --port 9000  only serve, and print the URL
  vestige ui --otlp                    and receive from OpenTelemetry exporters
""",
    exits="0 stopped, 2 run or path not found, or bad port, 3 unreadable, or viewer not built",
)
@click.argument("id", required=False, metavar="[RUN|PATH]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    show_default="8642, or the next free one",
    help="The port to listen on; 0 for any free port.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@otlp_option
@home_option
def ui(
    id: str | None, port: int | None, no_browser: bool, otlp: OtlpPorts | None, home: Home
) -> None:
    """Open the web viewer.

    RUN is any id that leads to a run; PATH is a file or folder of any supported format. The viewer
    is served on this machine only, until Ctrl-C. Its key is kept in the data directory, so links
    stay valid. If the viewer of this data directory is already running, it is opened.
    """
    if id is None:
        from vestige.cli.manage.import_discovered_sessions import offer_import

        offer_import(home)
    open_viewer(home, id, port=port, browser=not no_browser, otlp=otlp)


def open_viewer(
    home: Home,
    id: str | None,
    *,
    port: int | None = None,
    browser: bool = True,
    view: str | None = None,
    otlp: OtlpPorts | None = None,
) -> None:
    """Serve the viewer for a home or a path, and open it; `view`: the tab of a run.

    Without a port, a running viewer of the same home is opened instead of starting another one.
    """
    from vestige.server.run_server import make_server, serve
    from vestige.server.viewer_assets import read_viewer
    from vestige.server.viewer_instance import read_viewer_key

    read_viewer()  # first: without a built viewer there is nothing to serve
    with _served(home, id) as (place, anchor, collect), ExitStack() as files:
        page = anchor + (f"?view={view}" if view and anchor else "")
        key = read_viewer_key(place)
        running = None
        if port is None:
            # A file is served from a temporary home, whose links end with this command.
            port, running = _choose_port(key) if place.root == home.root else (0, None)
        if running is not None and otlp is not None:
            raise UsageError(
                f"--otlp: a viewer of this data directory runs on port {running} already. Stop it"
                " first, or use `vestige server start --otlp --port 0`."
            )
        if running is not None:
            url = f"http://127.0.0.1:{running}/?token={key}{page}"
            click.echo(f"Vestige is already running at {url}", err=True)
            if browser:
                _show(_launch(files, key, running, page))
                threading.Event().wait(BROWSER_S)  # the file is deleted afterwards
            return
        server = make_server(place, "127.0.0.1", token=key)

        def ready(url: str) -> None:
            click.echo(f"Vestige is running at {url}{page} (Ctrl-C to stop)", err=True)
            if otlp is not None:
                print_otlp(otlp, "127.0.0.1")
            if browser:
                # In a thread: some browsers return only when closed, and need the server meanwhile.
                address = _launch(files, key, server.port, page)
                threading.Thread(target=_show, args=(address,), daemon=True).start()

        serve(server, "127.0.0.1", port, collect=collect, otlp=otlp, ready=ready)


def _choose_port(key: str) -> tuple[int, int | None]:
    """Return the port to listen on, and that of a running viewer with this key."""
    from vestige.server.run_server import is_free
    from vestige.server.viewer_instance import DEFAULT_PORT, PORTS_TRIED, is_viewer_at

    for port in range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED):
        if is_free("127.0.0.1", port):
            if port != DEFAULT_PORT:
                click.echo(f"Port {DEFAULT_PORT} is in use. Using {port}.", err=True)
            return port, None
        if is_viewer_at(port, key):
            return port, port
    return 0, None


def _launch(files: ExitStack, key: str, port: int, page: str) -> str:
    """Return the address of a file that opens the viewer without its key on a command line."""
    from vestige.server.open_browser import launch_file, make_launch_code

    url = f"http://127.0.0.1:{port}/?launch={make_launch_code(key, page)}"
    return files.enter_context(launch_file(url)).as_uri()


@contextmanager
def _served(home: Home, id: str | None) -> Iterator[tuple[Home, str, bool]]:
    """Yield the home to serve, the URL fragment, and whether it has journals to import."""
    from vestige.transfer import is_source, open_path
    from vestige.transfer.open_any_path import open_as_home
    from vestige.transfer.text_encoding import find_wide_encoding
    from vestige.transfer.view_while_importing import is_long_source

    if id is not None and is_source(id):
        if is_long_source(Path(id)):
            size = os.path.getsize(id) // 1_000_000
            click.echo(f"Reading {id} ({size} MB). Pages show what has been read so far.", err=True)
        with open_as_home(id) as (found, lasting), _readable(found) as (place, lasts):
            with open_path(place) as debugger:
                runs = debugger.list(limit=2).runs
            anchor = f"#/run/{runs[0].short_id}" if len(runs) == 1 else ""
            yield place, anchor, lasting and lasts
        return
    if id is not None and (encoded := find_wide_encoding(Path(id))):
        raise UnreadableError(encoded)
    with _readable(home) as (place, lasts):
        if id is None:
            yield place, "", lasts
            return
        with open_path(place) as debugger:
            target: Any = debugger.resolve(id, "any")
            run = target.run.short_id
            span = _span_number(debugger, id) if target.span_id is not None else ""
        yield place, f"#/run/{quote(run)}{span}", lasts


@contextmanager
def _readable(home: Home) -> Iterator[tuple[Home, bool]]:
    """Yield the home, or a temporary copy if it is read-only, and whether it is the original."""
    from vestige.transfer.open_any_path import open_home_or_copy

    with open_home_or_copy(home) as (place, lasting, notice):
        if notice:
            click.echo(f"vestige: {notice}", err=True)
        yield place, lasting


def _span_number(debugger: Any, id: str) -> str:
    short: str = debugger.span(id).span.short_id
    return f"?span={short.rpartition('.')[2]}"


def _show(address: str) -> None:
    if not _open(address):
        click.echo("No browser found. Open the URL above.", err=True)


def _open(address: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def has_browser() -> bool:
    """Return whether this is an interactive terminal with a graphical browser."""

    from vestige.server.viewer_assets import is_built

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if os.environ.get("SSH_CONNECTION") and not os.environ.get("DISPLAY"):
        return False
    graphical = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    graphic = sys.platform == "darwin" or any(os.environ.get(name) for name in graphical)
    return graphic and is_built()
