"""The first thing to say of each run in a list: the finding that `check` leads with.

What is stored is read; of runs that nobody has examined, a list may examine some itself: the small
ones first, so many, for so long (limits.py). Of the others it says that they were not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige._runtime import clock
from vestige.errors import VestigeError
from vestige.limits import LIST_CHECKED_BYTES, LIST_CHECKED_MAX, LIST_CHECKED_ROWS, LIST_CHECKED_S
from vestige.query.failures.check import CheckReport, chains, found_in, in_chains
from vestige.record.finding import Finding
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import Store
from vestige.store.sqlite.read.reports import connection_of, read_ancestry, sum_body_bytes

Examine = Callable[[Run], CheckReport]
"""What the checks say of a run; it keeps it, where that is possible."""


@dataclass(frozen=True, slots=True)
class TopFindings:
    """By run id."""

    findings: dict[str, Finding]
    unseen: Sequence[str]
    """Finished runs that nobody has examined, in the order of the list."""


def find_top_findings(
    store: Store,
    runs: Sequence[RunInfo],
    examine: Examine | None = None,
    seconds: float = LIST_CHECKED_S,
) -> TopFindings:
    """Of these runs, from what is stored; with `examine`, also of some that nobody has examined."""
    stored = store.check_results([run.id for run in runs])
    tops = {run_id: _lead(store, run_id, found_in(each)) for run_id, each in stored.items()}
    unseen = [run for run in runs if run.id not in stored and run.outcome != "running"]
    if examine is not None and unseen:
        tops |= _look(store, unseen, examine, seconds)
    found = {run_id: finding for run_id, finding in tops.items() if finding is not None}
    return TopFindings(found, [run.id for run in unseen if run.id not in tops])


def _lead(store: Store, run_id: str, findings: Sequence[Finding]) -> Finding | None:
    """Without the run at hand: of its spans only those that findings name, and what they stand in."""
    if len(findings) < 2:
        return findings[0] if findings else None
    causes = [finding.cause for finding in findings if finding.cause is not None]
    return chains(read_ancestry(connection_of(store), run_id, causes), findings)[0][0]


def _look(
    store: Store, unseen: Sequence[RunInfo], examine: Examine, seconds: float
) -> dict[str, Finding | None]:
    from vestige.query.checks import all_checks

    all_checks()  # loaded once; the time is for the runs
    small = [run for run in unseen if run.span_count + run.log_count <= LIST_CHECKED_ROWS]
    small.sort(key=lambda run: run.span_count + run.log_count)
    deadline = clock.monotonic() + seconds
    tops: dict[str, Finding | None] = {}
    for run in small[:LIST_CHECKED_MAX]:
        if clock.monotonic() >= deadline:
            break
        if sum_body_bytes(connection_of(store), run.id) > LIST_CHECKED_BYTES:
            continue
        try:
            loaded = store.load_run(run.id)
            found = in_chains(loaded, examine(loaded).findings)
        except VestigeError:
            continue  # pruned meanwhile, or damaged: `check` says so
        tops[run.id] = found[0][0] if found else None
    return tops
