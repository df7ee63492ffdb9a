"""The latest successful run of the same task.

find_last_good(store, evidence, open_run)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vestige.query.evidence import Evidence
from vestige.query.trajectory.task import find_task_text, is_same_task
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, Store

RUNS_MAX: Final = 12
SPANS_MAX: Final = 5_000
"""Runs of the same name that are compared by their task, and their size."""


def find_last_good(
    store: Store, evidence: Evidence, open_run: Callable[[str], Evidence]
) -> RunInfo | None:
    """Return the latest successful run of the same task before this one, else after it.

    Runs of the same name are compared by their task; a run without one is known by its name.
    """
    run = evidence.run.info
    task = find_task_text(evidence)
    seen: set[str] = {run.id}
    for before_ns in (run.started_ns, None):
        same_name = RunFilter(
            name_is=run.name,
            outcome="ok",
            before_ns=before_ns,
            with_implicit=True,
            limit=RUNS_MAX,
            tenant_of=run.id,
        )
        for found in store.list_runs(same_name):
            if found.id in seen or (task and found.span_count > SPANS_MAX):
                continue
            seen.add(found.id)
            if not task or is_same_task(task, find_task_text(open_run(found.id))):
                return found
    return None
