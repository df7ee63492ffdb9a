"""A debugger for many queries about one run, which it reads once.

    debugger = CachedDebugger(store, info)
    debugger.span("r7.s12").data()      # the same answer as any debugger's, sooner

The run is a snapshot of the first read: make a new debugger for a run that has grown.
"""

from __future__ import annotations

from functools import lru_cache

from vestige.query.debugger import Debugger
from vestige.query.evidence import Evidence
from vestige.query.failures.check import CheckReport, examine
from vestige.query.ids.resolve import Target, Want, states_by_index
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import Store

CACHED_RUNS_MAX = 6
"""The run, and the runs that a chain of causes leads through (query/failures/why.py)."""


class CachedDebugger(Debugger):
    """A debugger that caches opened runs, check results, and short ids of spans and snapshots."""

    def __init__(self, store: Store, info: RunInfo) -> None:
        super().__init__(store)
        self._cached_open_run = lru_cache(CACHED_RUNS_MAX)(super()._open_run)
        self._cached_run_checks = lru_cache(CACHED_RUNS_MAX)(self._run_checks)
        self.run = run = self._open_run(info.id).run
        self._targets = {
            span.short_id: Target("span", run.info, span.id, "span id") for span in run.spans
        }
        self._targets[run.info.short_id] = Target("run", run.info, None, "run id")
        for index, span in states_by_index(run).items():
            name = f"{run.info.short_id}#{index}"
            self._targets[name] = Target("span", run.info, span.id, f"snapshot {index}")

    def resolve(self, id: str | None, want: Want = "any") -> Target:
        return self._targets.get(id or "") or super().resolve(id, want)

    def _open_run(self, run_id: str) -> Evidence:
        return self._cached_open_run(run_id)

    def _examine(self, run: Run) -> CheckReport:
        return self._cached_run_checks(run.info.id)

    def _run_checks(self, run_id: str) -> CheckReport:
        opened = self._open_run(run_id)
        return examine(self.store, opened.run, self._keep, opened)
