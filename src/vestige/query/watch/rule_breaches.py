"""Find the moment at which a running program breaks a rule: cost, loop, silence, policy.

    watcher = Watcher(store, WatchRules(max_cost_usd=5))
    breach = watcher.check(run_id, now_ns)      # None: go on

A program may open several runs; all of them count. Runs that did not change are not read again.
A rule that cannot be evaluated never stops a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vestige.errors import VestigeError
from vestige.query import formatting
from vestige.query.evidence import Evidence, open_run
from vestige.query.policy.policy import Policy
from vestige.query.policy.run_activity import read_activity
from vestige.query.policy.violations import find_violations
from vestige.query.stats.costs import format_dollars, run_costs
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, Store


@dataclass(frozen=True, slots=True)
class WatchRules:
    """The rules of a watch; None: no such rule."""

    max_cost_usd: float | None = None
    loop: bool = False
    silence_s: float | None = None
    policy: Policy | None = None

    def __bool__(self) -> bool:
        return self != WatchRules()


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a program broke."""

    code: str
    """`cost`, `loop`, `silence` or `policy/...`."""
    message: str
    run_id: str | None = None
    """The run that broke it, or the one that recorded last."""
    span_id: str | None = None
    """The span that broke it, or the last call."""


class Watcher:
    """Evaluates the rules on one program, again and again."""

    def __init__(self, store: Store, rules: WatchRules) -> None:
        self._store = store
        self._rules = rules
        self._seen: dict[str, tuple[int, int, int]] = {}

    def check(self, run_id: str, now_ns: int) -> Breach | None:
        """Return the first broken rule."""
        runs = self._store.list_runs(RunFilter(of_process=run_id, with_implicit=True))
        breach = self._check_cost(runs) or self._check_silence(runs, now_ns)
        if breach is not None:
            return self._locate(breach, runs)
        if not (self._rules.loop or self._rules.policy):
            return None
        for run in runs:
            state = (run.span_count, run.log_count, run.last_ns)
            if self._seen.get(run.id) != state:
                self._seen[run.id] = state
                breach = self._check_content(open_run(self._store, run.id))
                if breach is not None:
                    return self._locate(breach, [run])
        return None

    def _locate(self, breach: Breach, runs: Sequence[RunInfo]) -> Breach:
        """Add the run that recorded last and its last call, if no span broke the rule."""
        newest = max(runs, key=lambda run: (bool(run.tokens), run.last_ns))
        span_id = breach.span_id
        if span_id is None:
            calls = self._store.load_run(newest.id, with_logs=False).spans
            ended = [span for span in calls if span.type == "llm" and span.status is not None]
            last = max(ended, key=lambda span: span.started_ns, default=None)
            span_id = None if last is None else last.id
        return replace(breach, run_id=newest.id, span_id=span_id)

    def _check_cost(self, runs: Sequence[RunInfo]) -> Breach | None:
        limit = self._rules.max_cost_usd
        if limit is None:
            return None
        costs = run_costs(self._store, [run.id for run in runs])
        total = sum(cost.dollars or 0.0 for cost in costs.values())
        if total < limit:
            return None
        return Breach("cost", f"Cost is {format_dollars(total)} (limit {format_dollars(limit)}).")

    def _check_silence(self, runs: Sequence[RunInfo], now_ns: int) -> Breach | None:
        limit = self._rules.silence_s
        if limit is None or not any(run.outcome == "running" for run in runs):
            return None
        silent_ns = now_ns - max(run.last_ns for run in runs)
        if silent_ns < limit * 1e9:
            return None
        return Breach("silence", f"Nothing was recorded for {formatting.duration(silent_ns)}.")

    def _check_content(self, evidence: Evidence) -> Breach | None:
        try:
            return self._check_loop(evidence) or self._check_policy(evidence)
        except VestigeError:
            return None  # A body is missing; the next change is checked again.

    def _check_loop(self, evidence: Evidence) -> Breach | None:
        if not self._rules.loop:
            return None
        from vestige.query.checks import all_checks

        for check in all_checks():
            if check.name == "loop":
                for finding in check.function(evidence):
                    if finding.severity != "hint":
                        return Breach("loop", finding.message, span_id=finding.cause)
        return None

    def _check_policy(self, evidence: Evidence) -> Breach | None:
        if self._rules.policy is None:
            return None
        activity = evidence.once(read_activity)
        for violation in find_violations(self._rules.policy, activity, ended=False):
            code = f"policy/{violation.rule}"
            return Breach(code, violation.message, span_id=violation.span_id)
        return None
