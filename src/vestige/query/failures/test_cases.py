"""The cases of a test suite: which failed, told before anything else, for they are what one came for;
and what is inside of each, for what one agent does says nothing about that of another test.

    parts = parts_of(evidence)       # the suite without what is inside its cases, then each failed case
"""

from __future__ import annotations

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.record.run import Run, SpanInfo

SHOWN_MAX = 5
EXAMINED_MAX = 50
"""Failed cases whose inside is examined: a suite in which more fail has one cause, or is not read to its end."""

_BAD = ("fail", "unknown")
_PLUGIN = "pytest"
"""The component of tests that the pytest plugin records: one that was killed has nothing else to be known by."""


def is_case(span: SpanInfo) -> bool:
    """Is it a case of a suite? What an agent itself tests, its verifier say, is a step of the agent."""
    return span.type == "test" and ("outcome" in span.attributes or span.component == _PLUGIN)


def cases_of(run: Run) -> list[SpanInfo]:
    """The cases of a suite. Of reruns the last one counts."""
    return list({span.name: span for span in run.spans if is_case(span)}.values())


def is_bad(case: SpanInfo) -> bool:
    """Did it fail, or never end? One that was killed has no word of its own on that."""
    outcome = case.attributes.get("outcome")
    return outcome in _BAD if outcome is not None else case.status not in ("ok", None)


def failed_cases(run: Run) -> list[str]:
    """Lines: which cases failed or never ended, and why. None where the run is no suite, or all is well."""
    cases = cases_of(run)
    failed = list(filter(is_bad, cases))
    if not failed:
        return []
    told = [f"  {_told(span)}" for span in failed[:SHOWN_MAX]]
    if len(failed) > SHOWN_MAX:
        told.append(f"  … {len(failed) - SHOWN_MAX} more")
    return [f"failed cases ({len(failed)} of {len(cases)}):", *told]


def _told(span: SpanInfo) -> str:
    message = span.attributes.get("error.message")
    why = f": {formatting.single_line(str(message), 120)}" if message else ""
    if not message and span.status == "interrupted":
        why = ": never ended"
    return f"{span.short_id} {formatting.single_line(span.name, 100)}{why}"


def parts_of(evidence: Evidence) -> list[Evidence]:
    """What checks look at one by one: all of it, unless it is a suite."""
    tests = {span.id for span in evidence.run.spans if is_case(span)}
    if not tests:
        return [evidence]
    run, case_of = evidence.run, _inside(evidence.run, tests)
    bad = [case.id for case in cases_of(run) if is_bad(case)][:EXAMINED_MAX]
    parts = {case: Run(info=run.info, spans=[], logs=[], links=[]) for case in (None, *bad)}

    def part_of(span_id: str | None, speaks: bool = False) -> Run | None:
        """Of each span one, and of each line; none for what is inside a case that went well."""
        case = span_id if span_id in parts or (speaks and span_id in tests) else None
        return parts.get(case_of.get(span_id or "", case))

    for span in run.spans:
        if (part := part_of(span.id)) is not None:
            part.spans.append(span)
    for log in run.logs:
        if (part := part_of(log.span_id, speaks=True)) is not None:
            part.logs.append(log)
    for link in run.links:
        if (part := part_of(link.span_id)) is not None:
            part.links.append(link)
    return [evidence.part(part, case) for case, part in parts.items()]


def _inside(run: Run, tests: set[str]) -> dict[str, str]:
    """Of each span that stands in a test: which one."""
    parents = {span.id: span.parent_id for span in run.spans}
    found: dict[str, str] = {}
    for span in run.spans:
        passed: list[str] = []
        at: str | None = span.id
        while at is not None and at not in tests and at not in found and at in parents:
            passed.append(at)
            at = parents.pop(at)  # so that a circle ends, and each is passed once
        case = at if at in tests else found.get(at or "")
        if case is not None:
            found.update(dict.fromkeys(passed, case))
    return found
