"""The line that `vestige run` prints when its command has ended.

    r7 triage: error after 3.2s, 1.2k tokens. Next: vestige why r7

A program may open runs of its own inside the run that `vestige run` opens for it. The line
describes the first run that failed, else the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from vestige.query import formatting
from vestige.record.run import NOT_FAILED, RunInfo
from vestige.store.protocol import RunFilter, Store

RUNS_MAX = 1_000
"""Newest runs of one command that are considered."""


def end_line(store: Store, run_id: str, at: str = "") -> str | None:
    """Return the line, or None while the store has not seen the end of the run.

    `at` holds the options that make a command read this store.
    """
    own = next((run for run in store.find_runs(run_id) if run.id == run_id), None)
    if own is None or own.ended_ns is None:
        return None
    listed = store.list_runs(RunFilter(of_process=run_id, limit=RUNS_MAX))
    run = _choose_run(listed) or own
    more = len(listed) - 1
    others = ""
    if more > 0:
        others = f" (and {formatting.pluralize(more, 'other run')}: {_command('list', '', at)})"
    tokens = f", {formatting.number(run.tokens)} tokens" if run.tokens else ""
    if run is own and own.span_count == 1:
        tokens = ", nothing inside was recorded (not Python, or Python without Vestige)"
    name, outcome = formatting.single_line(run.name, 60), formatting.single_line(run.outcome, 20)
    return (
        f"{run.short_id} {name}: {outcome}"
        f"{formatting.after(run.duration_ns)}{tokens}{others}."
        f" Next: {next_command(run.short_id, run.outcome == 'ok', at)}"
    )


def _choose_run(runs_newest_first: Sequence[RunInfo]) -> RunInfo | None:
    for run in reversed(runs_newest_first):
        if run.outcome not in NOT_FAILED:
            return run
    return runs_newest_first[0] if runs_newest_first else None


def next_command(run: str, ok: bool, at: str = "") -> str:
    return _command("show" if ok else "why", run, at)


def _command(verb: str, run: str, at: str) -> str:
    return " ".join(word for word in ("vestige", verb, run, at) if word)
