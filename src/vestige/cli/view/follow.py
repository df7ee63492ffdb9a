"""`vestige follow`: watch a run as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.cli.print_answer import open_debugger, styled_line

if TYPE_CHECKING:
    from vestige.query.views.follow import Following
    from vestige.record.run import RunInfo
    from vestige.store.protocol import Store


@click.command(
    "follow",
    cls=Examples,
    examples="""
  vestige follow                 the current run, or the next one to start
  vestige follow r7              this run, until it ends
  vestige follow --type tool     only its tool calls
  vestige follow --errors        only failed spans
""",
    exits="0 the run has ended, 2 run not found, 3 store unreadable, 130 stopped by Ctrl-C",
)
@click.argument("run", required=False)
@click.option("--errors", is_flag=True, help="Only failed spans.")
@click.option("--type", "type", metavar="TYPE", help="Only spans of this type: llm, tool, ...")
@home_option
def follow(run: str | None, errors: bool, type: str | None, home: Home) -> None:
    """Watch a run as it happens, until it ends.

    One line for each span that starts or ends, and for each log record. Default: the current run,
    or the next one to start.
    """
    from vestige.errors import UsageError
    from vestige.query.views.follow import Following
    from vestige.transfer import is_source

    if run is not None and is_source(run):
        raise UsageError(f"follow: {run}: a file does not change. Use `vestige show`.")
    if run is None:
        home.make()  # the first run may not have started
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
    """Return the current run, or wait for the next one to start."""
    from vestige.store.protocol import RunFilter

    notified = False
    while True:
        for info in store.list_runs(RunFilter(limit=10)):
            if info.outcome == "running":
                return info
        if not notified:
            click.echo(
                "vestige: No active run. Waiting for the next one (Ctrl-C to stop).", err=True
            )
            notified = True
        _wait(home)


def _changed(home: Home, store: Store, before: RunInfo) -> RunInfo:
    """Wait until the run has changed, and return it."""
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
