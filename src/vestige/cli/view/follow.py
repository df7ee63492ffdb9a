"""`vestige follow`: a run while it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vestige.cli.answers import open_debugger, styled_line
from vestige.cli.options import Examples, Home, home_option

if TYPE_CHECKING:
    from vestige.query.views.follow import Following
    from vestige.record.run import RunInfo
    from vestige.store.protocol import Store


@click.command(
    "follow",
    cls=Examples,
    examples="""
  vestige follow                 the run that is under way, or the next one
  vestige follow r7              this one, up to its end
  vestige follow --type tool     only its tool calls
  vestige follow --errors        only what fails
""",
    exits="0 the run has ended, 2 no such run, 3 unreadable store, 130 stopped by Ctrl-C",
)
@click.argument("run", required=False)
@click.option("--errors", is_flag=True, help="Only what failed.")
@click.option("--type", "type", metavar="TYPE", help="Only spans of this type: llm, tool, ...")
@home_option
def follow(run: str | None, errors: bool, type: str | None, home: Home) -> None:
    """Watch a run as it happens, up to its end.

    A line for each span that lasts, when it begins, and for each that ended; and for each log
    line. Without RUN: the one that is under way, else the next that begins.
    """
    from vestige.errors import UsageError
    from vestige.query.views.follow import Following
    from vestige.transfer import is_source

    if run is not None and is_source(run):
        raise UsageError(f"follow: {run}: nothing comes to a file. See it with `vestige show`.")
    if run is None:
        home.make()  # the first run may be yet to come
    try:
        _follow(home, run, Following(errors=errors, type=type))
    except KeyboardInterrupt:
        click.get_current_context().exit(130)


def _follow(home: Home, run: str | None, following: Following) -> None:
    from vestige.query.views.show import header, render_line

    with open_debugger(home) as (debugger, _):
        store = debugger.store
        info = debugger.resolve(run, "run").run if run is not None else _next(home, store)
        width = 0
        while True:
            lines = following.news(store.load_run(info.id))
            width = max([width, *(len(line.id) for line in lines)])
            for line in lines:
                click.echo(styled_line(render_line(line, width), line.style))
            if info.outcome != "running":
                break
            info = _changed(home, store, info)
        click.echo(styled_line(header(store.load_run(info.id))[0], f"head {info.outcome}"))


def _next(home: Home, store: Store) -> RunInfo:
    """The run that is under way; else one that begins while we wait."""
    from vestige.store.protocol import RunFilter

    said = False
    while True:
        for info in store.list_runs(RunFilter(limit=10)):
            if info.outcome == "running":
                return info
        if not said:
            click.echo(
                "vestige: no run is under way; waiting for the next. Ctrl-C stops.", err=True
            )
            said = True
        _wait(home)


def _changed(home: Home, store: Store, before: RunInfo) -> RunInfo:
    """The run, once something more of it is known."""
    while True:
        _wait(home)
        (info,) = store.find_runs(before.id)
        if info != before:
            return info


def _wait(home: Home) -> None:
    from vestige._runtime import clock
    from vestige.collector.loop import catch_up
    from vestige.limits import TICK_S

    clock.sleep(TICK_S)
    catch_up(home)
