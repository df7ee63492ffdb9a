"""`vestige ui`: the viewer, in the browser."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

import click

from vestige.cli.options import Examples, Home, home_option


@click.command(
    "ui",
    cls=Examples,
    examples="""
  vestige ui                           all runs of the home
  vestige ui r7                        one run
  vestige ui crash.wink                a file or folder of any format that can be read
  vestige ui --no-browser --port 8642  only serve, at the URL that it prints
""",
    exits="0 ended, 2 no such run or path, or bad port, 3 unreadable input, or no page was built",
)
@click.argument("id", required=False, metavar="[RUN|PATH]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="any that is free",
    help="The port to serve at.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@home_option
def ui(id: str | None, port: int, no_browser: bool, home: Home) -> None:
    """Look at runs in the browser: what happened, and why.

    RUN is anything that leads to a run; PATH is a file or folder of any format that can be
    read. The page comes from a server on this machine alone, until Ctrl-C.
    """
    open_viewer(home, id, port=port, browser=not no_browser)


def open_viewer(
    home: Home,
    id: str | None,
    *,
    port: int = 0,
    browser: bool = True,
    view: str | None = None,
) -> None:
    """Serve the page for a home, or for what is at a path, and show it; of one run, this view."""
    from vestige.server.launch_file import launch_file
    from vestige.server.run_server import make_server, serve
    from vestige.server.viewer_assets import read_viewer

    read_viewer()  # before anything is read in: without the page there is nothing to show
    with _served(home, id) as (place, anchor, collect):
        server = make_server(place, "127.0.0.1", token=True)

        def ready(url: str) -> None:
            page = anchor + (f"?view={view}" if view and anchor else "")
            address = url + page
            click.echo(f"serving {address}; Ctrl-C stops", err=True)
            if browser:
                code = server.launches.add(page)
                launch = f"http://127.0.0.1:{server.port}/?launch={code}"
                path = files.enter_context(launch_file(launch))
                # In a thread: some browsers return only when they are closed, and need our answers.
                threading.Thread(target=_show, args=(path.as_uri(),), daemon=True).start()

        with ExitStack() as files:
            serve(server, "127.0.0.1", port, collect=collect, ready=ready)


@contextmanager
def _served(home: Home, id: str | None) -> Iterator[tuple[Home, str, bool]]:
    """The home to serve, the place in the page, and whether it has journals to take in."""
    from vestige.transfer import is_source, open_path
    from vestige.transfer.open_source import open_as_home

    if id is not None and is_source(id):
        with open_as_home(id) as (found, lasting), _told(found) as (place, lasts):
            with open_path(place) as debugger:
                runs = debugger.list(limit=2).runs
            anchor = f"#/run/{runs[0].short_id}" if len(runs) == 1 else ""
            yield place, anchor, lasting and lasts
        return
    with _told(home) as (place, lasts):
        if id is None:
            yield place, "", lasts
            return
        with open_path(place) as debugger:
            target: Any = debugger.resolve(id, "any")
            run = target.run.short_id
            span = _span_number(debugger, id) if target.span_id is not None else ""
        yield place, f"#/run/{quote(run)}{span}", lasts


@contextmanager
def _told(home: Home) -> Iterator[tuple[Home, bool]]:
    """The home, or a copy of one in which nothing can be written; whether it lasts."""
    from vestige.transfer.open_source import open_home_or_copy

    with open_home_or_copy(home) as (place, lasting, notice):
        if notice:
            click.echo(f"vestige: {notice}", err=True)
        yield place, lasting


def _span_number(debugger: Any, id: str) -> str:
    short: str = debugger.span(id).span.short_id
    return f"?span={short.rpartition('.')[2]}"


def _show(address: str) -> None:
    if not _open(address):
        click.echo("no browser here: open the address yourself", err=True)


def _open(address: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def has_browser() -> bool:
    """Is a person at this terminal, with a browser that a page can be shown in?"""
    import os

    from vestige.server.viewer_assets import is_built

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if os.environ.get("SSH_CONNECTION") and not os.environ.get("DISPLAY"):
        return False
    graphical = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    graphic = sys.platform == "darwin" or any(os.environ.get(name) for name in graphical)
    return graphic and is_built()
