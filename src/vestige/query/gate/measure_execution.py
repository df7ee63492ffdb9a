"""The measurement of one execution of a program: a run, and the runs that its process opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from vestige.query.evidence import Evidence
from vestige.query.failures.check import find_chains
from vestige.query.failures.top_findings import Examine
from vestige.query.groups.failure_groups import find_failure
from vestige.query.groups.failure_signature import Signature, find_signature
from vestige.query.policy.policy import Policy
from vestige.query.policy.run_activity import read_activity
from vestige.query.policy.violations import find_violations
from vestige.record.run import Run
from vestige.store.protocol import RunFilter, Store


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The usage and the results of one execution."""

    run: str
    """Its short id."""
    model_calls: int
    tool_calls: int
    tokens: int
    cost_usd: float
    duration_s: float
    tools: dict[str, int]
    hosts: list[str]
    failures: list[Signature]
    loops: list[str]
    """Messages of the findings about loops."""
    violations: list[tuple[str, str]] = []
    """Broken rules of the policy, with their messages."""
    exit_code: int = 0


def measure(
    store: Store,
    run_id: str,
    open_run: Callable[[str], Evidence],
    examine: Examine,
    policy: Policy | None = None,
    exit_code: int = 0,
) -> Measurement:
    """Measure a run and the runs that its process opened."""
    family = store.list_runs(RunFilter(of_process=run_id, with_implicit=True))
    opened = [open_run(info.id) for info in family]
    activities = [evidence.once(read_activity) for evidence in opened]
    tools = Counter(call.name for activity in activities for call in activity.tool_calls)
    found = {each for evidence in opened for each in _find_failures(evidence.run, examine)}
    # A process that ended with an error adds nothing to the failure of a run that it opened.
    explained = {each for each in found if each.error or each.text}
    reports = [examine(evidence.run) for evidence in opened]
    violations = [
        (violation.rule, violation.message)
        for activity in activities
        for violation in (find_violations(policy, activity) if policy is not None else ())
    ]
    return Measurement(
        run=next((info.short_id for info in family if info.id == run_id), run_id),
        model_calls=sum(activity.model_calls for activity in activities),
        tool_calls=sum(tools.values()),
        tokens=sum(activity.tokens for activity in activities),
        cost_usd=sum(activity.cost_usd or 0.0 for activity in activities),
        duration_s=max((activity.duration_s for activity in activities), default=0.0),
        tools=dict(sorted(tools.items())),
        hosts=sorted({host for activity in activities for host in activity.hosts}),
        failures=sorted(explained or found),
        loops=sorted(
            {
                finding.message
                for report in reports
                for finding in report.findings
                if finding.kind.startswith("loop/") and finding.severity != "hint"
            }
        ),
        violations=violations,
        exit_code=exit_code,
    )


def _find_failures(run: Run, examine: Examine) -> Iterator[Signature]:
    """Return the signatures of a run's failure and of each other chain of errors or warnings.

    A new failure must not be hidden by a known one that leads, as in a suite with two bad tests.
    """
    failure = find_failure(run, examine)
    if failure is not None:
        yield failure.signature
    for chain in find_chains(run, examine(run).findings):
        if chain[0].severity != "hint":
            yield find_signature(run, chain[0])
