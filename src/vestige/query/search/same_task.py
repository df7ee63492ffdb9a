"""Other runs of a run's task, to compare it with.

find_same_task(store, evidence, open_run)      # [RunInfo, ...], the newest first
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from vestige.query.evidence import Evidence
from vestige.query.failures.top_findings import find_top_findings
from vestige.query.ids.lineage import find_origins
from vestige.query.search.run_list import ListAnswer
from vestige.query.search.run_titles_and_results import TEXT_MAX, read_run_texts
from vestige.query.stats.costs import run_costs
from vestige.query.trajectory.task import find_task_text, is_same_task
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, Store

SEARCHED_MAX: Final = 200
"""Newest runs of the same name, and newest runs of any name, whose tasks are compared."""
OPENED_MAX: Final = 24
"""Runs that are opened because a list has only the beginning of their task, and their size."""
SPANS_MAX: Final = 5_000
FOUND_MAX: Final = 50


def find_same_task(
    store: Store, evidence: Evidence, open_run: Callable[[str], Evidence]
) -> list[RunInfo]:
    """Return the other runs of the same task; of the same name if the run has no task."""
    run = evidence.run.info
    same_name = _list_runs(store, run, name=run.name)
    task = find_task_text(evidence)
    if not task.strip():
        return same_name[:FOUND_MAX]
    candidates = {each.id: each for each in (*same_name, *_list_runs(store, run))}
    texts = read_run_texts(store, [run, *candidates.values()])
    own = texts[run.id].task or ""
    found: list[RunInfo] = []
    opened = 0
    for each in sorted(candidates.values(), key=lambda each: -each.started_ns):
        other = texts[each.id].task or ""
        if not other or not is_same_task(own, other):
            continue
        if max(len(own), len(other)) >= TEXT_MAX:
            opened += 1
            if opened > OPENED_MAX or each.span_count > SPANS_MAX:
                continue
            if not is_same_task(task, find_task_text(open_run(each.id))):
                continue
        found.append(each)
    return found[:FOUND_MAX]


def _list_runs(store: Store, run: RunInfo, name: str | None = None) -> list[RunInfo]:
    runs = store.list_runs(RunFilter(name_is=name, tenant_of=run.id, limit=SEARCHED_MAX + 1))
    return [each for each in runs if each.id != run.id]


def same_task_answer(store: Store, runs: Sequence[RunInfo], now_ns: int) -> ListAnswer:
    """Return the runs as a list, with what is known of them without a new check."""
    ids = [run.id for run in runs]
    return ListAnswer(
        runs,
        more=False,
        limit=FOUND_MAX,
        now_ns=now_ns,
        options=(),
        findings=find_top_findings(store, runs, None).findings,
        costs=run_costs(store, ids),
        texts=read_run_texts(store, runs),
        notes=store.summarize_notes(ids),
        origins=find_origins(store, ids),
    )
