"""The verbs for many questions about one run: what they need of it is read once.

    one = OneRun(store, info)
    one.span("r7.s12").data()           # as every debugger answers, only sooner

The run is taken as it is when it is first opened: who follows one that grows asks anew.
"""

from __future__ import annotations

from functools import lru_cache

from vestige.query.debugger import Debugger
from vestige.query.evidence import Evidence
from vestige.query.failures.check import CheckReport
from vestige.query.ids.resolve import Target, Want, states_by_index
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import Store

RUNS_HELD = 6
"""The run itself, and those that a chain of causes leads through (query/failures/why.py)."""


class CachedDebugger(Debugger):
    """Keeps open what it opened, and knows its spans and snapshots by their short ids."""

    def __init__(self, store: Store, info: RunInfo) -> None:
        super().__init__(store)
        self._held = lru_cache(RUNS_HELD)(super()._open_run)
        self._found = lru_cache(RUNS_HELD)(self._run_checks)
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
        return self._held(run_id)

    def _examine(self, run: Run) -> CheckReport:
        return self._found(run.info.id)

    def _run_checks(self, run_id: str) -> CheckReport:
        return super()._examine(self._open_run(run_id).run)
