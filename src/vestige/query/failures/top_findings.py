"""The leading finding of each run in a list: the main finding of the first chain, as on its page.

Stored findings are read. A list may also examine runs that were never checked: the smallest
first, within the limits of limits.py. The others are returned as unexamined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige._runtime import clock
from vestige.errors import VestigeError
from vestige.limits import LIST_CHECKED_BYTES, LIST_CHECKED_MAX, LIST_CHECKED_ROWS, LIST_CHECKED_S
from vestige.query.failures.check import (
    CheckReport,
    find_chains,
    find_main,
    get_findings,
    group_chains,
)
from vestige.query.failures.findings_of_successful_runs import CommonFindings
from vestige.record.finding import Finding
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import Store

Examine = Callable[[Run], CheckReport]
"""Run all checks over a run, and store the findings if possible."""


@dataclass(frozen=True, slots=True)
class TopFindings:
    """The leading findings of some runs."""

    findings: dict[str, Finding]
    """Keyed by run id."""
    unexamined: Sequence[str]
    """Ids of finished runs that were never checked, in the order of the list."""


def find_top_findings(
    store: Store,
    runs: Sequence[RunInfo],
    examine: Examine | None = None,
    seconds: float = LIST_CHECKED_S,
) -> TopFindings:
    """Read the stored findings of these runs, and with `examine` check some of the others."""
    stored = store.check_results([run.id for run in runs])
    common = CommonFindings(store)
    leading = {
        run.id: _find_lead(store, run.id, common.lower(run, get_findings(stored[run.id])))
        for run in runs
        if run.id in stored
    }
    unexamined = [run for run in runs if run.id not in stored and run.outcome != "running"]
    if examine is not None and unexamined:
        leading |= _examine_small_runs(store, unexamined, examine, seconds)
    findings = {run_id: finding for run_id, finding in leading.items() if finding is not None}
    return TopFindings(findings, [run.id for run in unexamined if run.id not in leading])


def _find_lead(store: Store, run_id: str, findings: Sequence[Finding]) -> Finding | None:
    """Find the leading finding from the causes and their ancestors, without loading the run."""
    if len(findings) < 2:
        return findings[0] if findings else None
    causes = [finding.cause for finding in findings if finding.cause is not None]
    return find_main(group_chains(store.read_ancestry(run_id, causes), findings)[0])


def _examine_small_runs(
    store: Store, unexamined: Sequence[RunInfo], examine: Examine, seconds: float
) -> dict[str, Finding | None]:
    from vestige.query.checks import all_checks

    all_checks()  # Load the checks before the time for the runs starts.
    small = [run for run in unexamined if run.span_count + run.log_count <= LIST_CHECKED_ROWS]
    small.sort(key=lambda run: run.span_count + run.log_count)
    deadline = clock.monotonic() + seconds
    leading: dict[str, Finding | None] = {}
    for run in small[:LIST_CHECKED_MAX]:
        if clock.monotonic() >= deadline:
            break
        if store.sum_body_bytes(run.id) > LIST_CHECKED_BYTES:
            continue
        try:
            loaded = store.load_run(run.id)
            chains = find_chains(loaded, examine(loaded).findings)
        except VestigeError:
            continue  # The run was pruned meanwhile, or it is damaged, which `check` reports.
        leading[run.id] = find_main(chains[0]) if chains else None
    return leading
