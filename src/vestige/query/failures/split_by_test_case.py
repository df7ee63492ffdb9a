"""The cases of a test suite: the failed ones, and the evidence inside each.

Cases are checked separately, because an agent in one test is unrelated to those in others.

    parts = split_by_case(evidence)       # the suite without its cases, then each failed case
"""

from __future__ import annotations

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.record.run import Run, SpanInfo

SHOWN_MAX = 5
EXAMINED_MAX = 50
"""Failed cases that are checked. If more fail, they usually share a cause."""

_FAILED = ("fail", "unknown")
_PLUGIN = "pytest"
"""The component of cases from the pytest plugin. A killed case has no outcome to identify it."""


def is_case(span: SpanInfo) -> bool:
    """Return True for a case of a suite. Other spans of type `test` are steps of an agent."""
    return span.type == "test" and ("outcome" in span.attributes or span.component == _PLUGIN)


def get_cases(run: Run) -> list[SpanInfo]:
    """Return the cases of a suite. Of reruns, the last one counts."""
    return list({span.name: span for span in run.spans if is_case(span)}.values())


def is_failed(case: SpanInfo) -> bool:
    """Return True if a case failed or never ended. A killed case has no outcome."""
    outcome = case.attributes.get("outcome")
    return outcome in _FAILED if outcome is not None else case.status not in ("ok", None)


def render_failed_cases(run: Run) -> list[str]:
    """Render the cases that failed or never ended; no lines if there are none."""
    cases = get_cases(run)
    failed = list(filter(is_failed, cases))
    if not failed:
        return []
    lines = [f"  {_format_case(case)}" for case in failed[:SHOWN_MAX]]
    if len(failed) > SHOWN_MAX:
        lines.append(f"  … {len(failed) - SHOWN_MAX} more")
    return [f"failed cases ({len(failed)} of {len(cases)}):", *lines]


def _format_case(case: SpanInfo) -> str:
    message = case.attributes.get("error.message")
    error = f": {formatting.single_line(str(message), 120)}" if message else ""
    if not message and case.status == "interrupted":
        error = ": never ended"
    return f"{case.short_id} {formatting.single_line(case.name, 100)}{error}"


def split_by_case(evidence: Evidence) -> list[Evidence]:
    """Split a suite into the parts to check: itself without its cases, and each failed case."""
    cases = {span.id for span in evidence.run.spans if is_case(span)}
    if not cases:
        return [evidence]
    run, case_of = evidence.run, _find_case_of_spans(evidence.run, cases)
    failed = [case.id for case in get_cases(run) if is_failed(case)][:EXAMINED_MAX]
    parts = {case: Run(info=run.info, spans=[], logs=[], links=[]) for case in (None, *failed)}

    def find_part(span_id: str | None, is_log: bool = False) -> Run | None:
        """Return the part of a record; None for records inside a case that is not checked.

        The span of such a case belongs to the suite, but its log records do not.
        """
        case = span_id if span_id in parts or (is_log and span_id in cases) else None
        return parts.get(case_of.get(span_id or "", case))

    for span in run.spans:
        if (part := find_part(span.id)) is not None:
            part.spans.append(span)
    for log in run.logs:
        if (part := find_part(log.span_id, is_log=True)) is not None:
            part.logs.append(log)
    for link in run.links:
        if (part := find_part(link.span_id)) is not None:
            part.links.append(link)
    return [evidence.part(part, case) for case, part in parts.items()]


def _find_case_of_spans(run: Run, cases: set[str]) -> dict[str, str]:
    """Return the case of each span inside one, by span id."""
    parents = {span.id: span.parent_id for span in run.spans}
    found: dict[str, str] = {}
    for span in run.spans:
        path: list[str] = []
        at: str | None = span.id
        while at is not None and at not in cases and at not in found and at in parents:
            path.append(at)
            at = parents.pop(at)  # Each span is visited once, so a cycle ends.
        case = at if at in cases else found.get(at or "")
        if case is not None:
            found.update(dict.fromkeys(path, case))
    return found
