"""Find the causes of failed test cases: the most severe finding inside each case.

A case has findings of its own spans, and of the runs that it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vestige.errors import NotFoundError
from vestige.query.evidence import Evidence
from vestige.query.failures.check import CASE, CaseCause, CheckReport
from vestige.query.failures.ranking import severity_key
from vestige.record.run import Run
from vestige.store.protocol import SpanRef

CASES_MAX = 20
"""Cases examined for one answer."""
SPANS_MAX = 50
"""Spans of one case whose links are read."""
RUNS_MAX = 10
"""Runs of one case. Each is loaded and checked."""

LinksTo = Callable[[str, str], Sequence[tuple[SpanRef, str | None]]]


def find_case_causes(
    evidence: Evidence,
    report: CheckReport,
    links_to: LinksTo,
    open_run: Callable[[str], Evidence],
    examine: Callable[[Run], CheckReport],
) -> dict[str, CaseCause]:
    """Return causes by the id of the case that a finding names."""
    found: dict[str, CaseCause] = {}
    cases_left = CASES_MAX
    for finding in report.findings:
        if finding.check != CASE or finding.cause is None:
            continue
        for case in finding.evidence[:cases_left]:
            cases_left -= 1
            spans = _spans_inside(evidence, case)
            causes = [
                CaseCause(candidate, evidence.run)
                for candidate in report.findings
                if candidate.cause in spans and candidate.check != CASE
            ]
            for run in _iter_started_runs(evidence, spans, links_to, open_run):
                causes += [CaseCause(candidate, run) for candidate in examine(run).findings]
            if causes:
                found[finding.cause] = min(causes, key=lambda cause: severity_key(cause.finding))
                break
    return found


def _spans_inside(evidence: Evidence, case: str) -> list[str]:
    """Return the ids of the case and of the spans inside it."""
    inside = [case]
    for span_id in inside:
        children = evidence.children.get(span_id, ()) if len(inside) <= SPANS_MAX else ()
        inside += [span.id for span in children if span.id != span_id]
    return inside


def _iter_started_runs(
    evidence: Evidence,
    spans: Sequence[str],
    links_to: LinksTo,
    open_run: Callable[[str], Evidence],
) -> Iterator[Run]:
    """Yield the runs that a case, or a span inside it, started."""
    seen = {evidence.run.info.id}
    for span_id in spans[:SPANS_MAX]:
        for ref, reason in links_to(evidence.run.info.id, span_id):
            if reason == "started by" and ref.run_id not in seen and len(seen) <= RUNS_MAX:
                seen.add(ref.run_id)
                try:
                    yield open_run(ref.run_id).run
                except NotFoundError:
                    continue  # The run was pruned.
