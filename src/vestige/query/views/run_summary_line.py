"""One line about a command that has just ended: which run it was, how it went, what to ask next.

    r7 triage: error after 3.2s, 1.2k tokens. Next: vestige why r7

A program may open runs of its own inside the one that `vestige run` opens for it. The line is about
the run that a person would look for: the first that failed, else the last that there is to see.
"""

from __future__ import annotations

from collections.abc import Sequence

from vestige.query import formatting
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, Store

RUNS_MAX = 1_000
"""Runs of one command that are looked at; of a command with more, some failed one is as good."""


def end_line(store: Store, run_id: str, at: str = "") -> str | None:
    """Nothing, while the store has not seen its end. `at`: what a command needs to ask this store."""
    own = next((run for run in store.find_runs(run_id) if run.id == run_id), None)
    if own is None or own.ended_ns is None:
        return None
    listed = store.list_runs(RunFilter(of_process=run_id, limit=RUNS_MAX))
    told = _most_telling(listed) or own
    more = len(listed) - 1
    others = (
        f" (and {formatting.pluralize(more, 'other run')}: {_command('list', '', at)})"
        if more > 0
        else ""
    )
    tokens = f", {formatting.number(told.tokens)} tokens" if told.tokens else ""
    if told is own and own.span_count == 1:
        tokens = ", nothing inside was recorded (no Python, or one without Vestige)"
    return (
        f"{told.short_id} {formatting.single_line(told.name, 60)}: {formatting.single_line(told.outcome, 20)}"
        f" after {formatting.duration(told.duration_ns)}{tokens}{others}."
        f" Next: {next_command(told.short_id, told.outcome == 'ok', at)}"
    )


def _most_telling(runs_newest_first: Sequence[RunInfo]) -> RunInfo | None:
    for run in reversed(runs_newest_first):
        if run.outcome not in ("ok", "running"):
            return run
    return runs_newest_first[0] if runs_newest_first else None


def next_command(run: str, ok: bool, at: str = "") -> str:
    return _command("show" if ok else "why", run, at)


def _command(verb: str, run: str, at: str) -> str:
    return " ".join(word for word in ("vestige", verb, run, at) if word)
