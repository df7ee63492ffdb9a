"""`vestige stacks`: where a program stands that still runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.answers import open_debugger, print_json, styled_line
from vestige.cli.options import DURATION, Examples, Home, home_option, json_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vestige.collector.stack_requests import StackRequest
    from vestige.record.run import LogInfo, RunInfo
    from vestige.store.protocol import Store

_WAIT_S = 5.0
"""A process looks for questions once a second."""


@click.command(
    "stacks",
    cls=Examples,
    examples="""
  vestige stacks                 of the run that is under way
  vestige stacks r7              of this one
  vestige stacks r7 --wait 30s   of a machine that is very busy
  vestige stacks r7 --json | jq '.processes[].at'
""",
    exits="0 told, 1 a process did not answer, 2 no such run, or none of its processes lives, 3 unreadable store",
)
@click.argument("run", required=False)
@click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=_WAIT_S,
    metavar="TIME",
    help="How long to wait for an answer.  [default: 5s]",
)
@json_option
@home_option
def stacks(run: str | None, wait_s: float, as_json: bool, home: Home) -> None:
    """Ask a program that hangs where it stands: every thread, every asyncio task.

    The program goes on, and its answer stays in the run. One that waits is told of by itself: when nothing was
    recorded for half a minute, where it stands is written down.
    """
    from vestige.collector.stack_requests import stack_requests
    from vestige.errors import NotFoundError

    with open_debugger(home, run) as (debugger, wanted):
        store = debugger.store
        info = debugger.resolve(wanted, "run").run if wanted else _under_way(store)
        with stack_requests(home, store, store.load_run(info.id)) as question:
            if not question.processes:
                raise NotFoundError(
                    f"{info.short_id}: none of its processes lives here. How it ended: `vestige check {info.short_id}`."
                )
            answers = _wait_for(home, store, info, question, wait_s)
        told = [_told(store, each.pid, answers.get(each.writer)) for each in question.processes]
    _print(info, told, as_json)
    if len(answers) < len(told):
        sys.exit(1)


def _under_way(store: Store) -> RunInfo:
    from vestige.errors import NotFoundError
    from vestige.store.protocol import RunFilter

    for info in store.list_runs(RunFilter(limit=100)):
        if info.outcome == "running":
            return info
    raise NotFoundError("stacks: no run is under way. Name one: `vestige list`.")


def _wait_for(
    home: Home, store: Store, info: RunInfo, question: StackRequest, wait_s: float
) -> Mapping[str, LogInfo]:
    """The answers, as soon as all are there, or as many as came in time."""
    from vestige._runtime import clock
    from vestige.collector.loop import catch_up
    from vestige.limits import TICK_S

    until = clock.monotonic() + wait_s
    while True:
        clock.sleep(TICK_S)
        catch_up(home)
        answers = question.answers(store.load_run(info.id))
        if len(answers) >= len(question.processes) or clock.monotonic() >= until:
            return answers


def _told(store: Store, pid: int | None, answer: LogInfo | None) -> dict[str, Any]:
    """What a process answered, with stable keys; without `stacks` if it did not."""
    if answer is None or answer.body is None or answer.body.id is None:
        return {"pid": pid}
    text = store.read_body(answer.body.id).decode(errors="replace")
    counts = {name: answer.attributes.get(name) for name in ("threads", "tasks")}
    return {"pid": pid, "said": answer.message, **counts, "stacks": text}


def _print(info: RunInfo, told: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from vestige.query.views.body_view import visible
    from vestige.record.redaction.output_redaction import redact_text, redact_values

    if as_json:
        print_json(redact_values({"run": info.short_id, "processes": told}), 2)
        return
    for each in told:
        pid, text = each["pid"], each.get("stacks")
        if text is None:
            said = f"did not answer: it is stopped, or busy in code that lets no other thread run. `kill -TERM {pid}` ends it, and leaves its stacks in the run."
        else:
            said = visible(each["said"].partition("; ")[2])
        click.echo(styled_line(f"pid {pid} {said}", "error" if text is None else "head running"))
        if text is not None:
            click.echo(redact_text(visible(text)))
