"""Failed tests of a suite, grouped by failure, with their location in the code.

Tests fail alike if the same error was raised at the same location of the program's own code,
whatever the values. Without a location, the message without numbers and quoted texts decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.failures.split_by_test_case import get_cases, is_failed
from vestige.query.failures.traceback_parsing import Frame, find_own_frame
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 20
"""Groups of failures that are reported one by one, the largest first."""
EVIDENCE_MAX = 10

_PHASE: Final = re.compile(r"(setup|teardown|collection): ")
_VALUES: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|0x[0-9a-f]+|\d+")
_FAILURE: Final = "/failure.txt"
"""File in a bundle with the traceback as pytest printed it."""


@check(
    "failed-case",
    title="Tests failed",
    looks_at="spans of type `test`, the last attempt of each, their messages and stacks",
    severity="error",
    confidence=0.98,
    false_positives="a test that is known to fail, but not marked so; tests that fail at one "
    "location for several reasons are one finding",
)
def failed_case(evidence: Evidence) -> Iterator[Finding]:
    if evidence.case is not None:
        return  # this evidence is the inside of a test
    cases = get_cases(evidence.full.run)
    by_failure: dict[object, list[tuple[SpanInfo, Frame | None]]] = {}
    for case in filter(is_failed, cases):
        frame = _find_frame(evidence.full, case)
        by_failure.setdefault(_failure_key(case, frame), []).append((case, frame))
    groups = sorted(by_failure.values(), key=len, reverse=True)
    for group in groups[:FINDINGS_MAX]:
        yield _to_finding(evidence.full, [case for case, _ in group], group[0][1], len(cases))
    rest = [case for group in groups[FINDINGS_MAX:] for case, _ in group]
    if rest:
        yield make_finding(
            evidence.full,
            "failed-case",
            evidence=[case.id for case in rest[:EVIDENCE_MAX]],
            message=f"{formatting.pluralize(len(rest), 'more test')} ({len(rest)} of {len(cases)}) "
            "failed in other ways.",
        )


def _to_finding(
    evidence: Evidence, group: Sequence[SpanInfo], frame: Frame | None, total: int
) -> Finding:
    first = group[0]
    phase = _PHASE.match(_message(first))
    kind, event = "failed-case", "failed"
    if first.status == "interrupted":
        kind, event = "failed-case/interrupted", "did not finish"
    elif phase:
        kind = f"failed-case/{phase[1]}"
    names = formatting.single_line(first.name, 60)
    if len(group) > 1:
        names += f" and {formatting.pluralize(len(group) - 1, 'more test')}"
    error = formatting.single_line(_message(first).partition("\n")[0], 100)
    location = f" at {frame}" if frame is not None else ""
    return make_finding(
        evidence,
        "failed-case",
        kind=kind,
        cause=first.id,
        evidence=[case.id for case in group[:EVIDENCE_MAX]],
        message=f"{names} ({len(group)} of {total}) {event}"
        f"{f': {error}' if error else ''}{location}.",
    )


def _message(case: SpanInfo) -> str:
    return str(case.attributes.get("error.message") or "")


def _failure_key(case: SpanInfo, frame: Frame | None) -> object:
    message = _message(case)
    if frame is None:
        return case.status, _VALUES.sub("…", message)
    # Messages at one location differ in values only, except for the type of the error.
    return frame.file, frame.line, _VALUES.sub("…", message).partition(":")[0].split(" ")[0]


def _find_frame(evidence: Evidence, case: SpanInfo) -> Frame | None:
    """Return the frame of the program's own code in which the test failed."""
    frame = find_own_frame(case.attributes.get("error.stack"))
    if frame is not None:
        return frame
    files = (span for span in evidence.children.get(case.id, ()) if span.type == "file")
    text = next((evidence.input(file) for file in files if file.name.endswith(_FAILURE)), None)
    return find_own_frame(text)
