"""`vestige stacks`: where a running program is stuck."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.options import DURATION, Examples, Home, home_option, json_option
from vestige.cli.print_answer import open_debugger, print_json, styled_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vestige.collector.stack_requests import StackRequest
    from vestige.record.run import LogInfo, RunInfo
    from vestige.store.protocol import Store

_WAIT_S = 5.0
"""A process looks for stack requests once a second."""


@click.command(
    "stacks",
    cls=Examples,
    examples="""
  vestige stacks                 of the current run
  vestige stacks r7              of this run
  vestige stacks r7 --wait 30s   wait longer on a busy machine
  vestige stacks r7 --json | jq '.processes[].at'
""",
    exits="0 ok, 1 a process did not respond, 2 run not found, or no live process,"
    " 3 store unreadable",
)
@click.argument("run", required=False)
@click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=_WAIT_S,
    metavar="TIME",
    help="How long to wait for a response.  [default: 5s]",
)
@json_option
@home_option
def stacks(run: str | None, wait_s: float, as_json: bool, home: Home) -> None:
    """Show where a running program is stuck: the stacks of all threads and asyncio tasks.

    The program continues, and its stacks are stored in the run. A process that records nothing for
    30 s dumps its stacks automatically.
    """
    from vestige.collector.stack_requests import stack_requests
    from vestige.errors import NotFoundError

    with open_debugger(home, run) as (debugger, run_id):
        store = debugger.store
        info = debugger.resolve(run_id, "run").run if run_id else _current_run(store)
        with stack_requests(home, store, store.load_run(info.id)) as request:
            if not request.processes:
                raise NotFoundError(
                    f"{info.short_id}: no live process."
                    f" Why it ended: `vestige check {info.short_id}`."
                )
            answers = _wait_for(home, store, info, request, wait_s)
        replies = [_reply(store, each.pid, answers.get(each.writer)) for each in request.processes]
    _print(info, replies, as_json)
    if len(answers) < len(replies):
        sys.exit(1)


def _current_run(store: Store) -> RunInfo:
    from vestige.errors import NotFoundError
    from vestige.store.protocol import RunFilter

    for info in store.list_runs(RunFilter(limit=100)):
        if info.outcome == "running":
            return info
    raise NotFoundError("stacks: no active run. List runs: `vestige list`.")


def _wait_for(
    home: Home, store: Store, info: RunInfo, request: StackRequest, wait_s: float
) -> Mapping[str, LogInfo]:
    """Return the answers once all have arrived, or those that arrived in time."""
    from vestige._runtime import clock
    from vestige.collector.loop import catch_up
    from vestige.limits import TICK_S

    until = clock.monotonic() + wait_s
    while True:
        clock.sleep(TICK_S)
        catch_up(home)
        answers = request.answers(store.load_run(info.id))
        if len(answers) >= len(request.processes) or clock.monotonic() >= until:
            return answers


def _reply(store: Store, pid: int | None, answer: LogInfo | None) -> dict[str, Any]:
    """Return the answer of a process as data; without `stacks` if it did not respond."""
    if answer is None or answer.body is None or answer.body.id is None:
        return {"pid": pid}
    text = store.read_body(answer.body.id).decode(errors="replace")
    counts = {name: answer.attributes.get(name) for name in ("threads", "tasks")}
    return {"pid": pid, "message": answer.message, **counts, "stacks": text}


def _print(info: RunInfo, replies: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from vestige.query.views.body import visible
    from vestige.record.redaction.output_redaction import redact_text, redact_values

    if as_json:
        print_json(redact_values({"run": info.short_id, "processes": replies}), 2)
        return
    for each in replies:
        pid, text = each["pid"], each.get("stacks")
        if text is None:
            line = (
                "did not respond: it is stopped, or busy in code that blocks all threads."
                f" `kill -TERM {pid}` ends it, and stores its stacks in the run."
            )
        else:
            line = visible(each["message"].partition("; ")[2])
        click.echo(styled_line(f"pid {pid} {line}", "error" if text is None else "head running"))
        if text is not None:
            click.echo(redact_text(visible(text)))
