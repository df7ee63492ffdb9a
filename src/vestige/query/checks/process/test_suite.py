"""Cases of a test suite that failed: which, why, and where in the code; those that failed alike, once.

Alike is what was raised at the same place of the program's own code, whatever the values. Where no place
is known, the message decides, its numbers and quoted texts aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.failures.test_cases import cases_of, is_bad
from vestige.query.failures.traceback_parsing import Frame, own_frame
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 20
"""Ways to fail that are told one by one, the most frequent first."""
EVIDENCE_MAX = 10

_PHASE: Final = re.compile(r"(setup|teardown|collection): ")
_VALUES: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|0x[0-9a-f]+|\d+")
_FAILURE: Final = "/failure.txt"
"""What the pytest plugin keeps of a failure in a bundle: the traceback as pytest prints it."""


@check(
    "failed-case",
    title="Cases of a test suite failed",
    looks_at="spans of type `test`, the last attempt of each, their messages and stacks",
    severity="error",
    confidence=0.98,
    false_positives="a case that is known to fail, and not marked so; cases that fail at one place for several reasons are told as one",
)
def failed_case(evidence: Evidence) -> Iterator[Finding]:
    if evidence.case is not None:
        return  # a failed case itself
    cases = cases_of(evidence.full.run)
    alike: dict[object, list[tuple[SpanInfo, Frame | None]]] = {}
    for case in filter(is_bad, cases):
        frame = _frame(evidence.full, case)
        alike.setdefault(_key(case, frame), []).append((case, frame))
    groups = sorted(alike.values(), key=len, reverse=True)
    for group in groups[:FINDINGS_MAX]:
        yield _failed(evidence.full, [case for case, _ in group], group[0][1], len(cases))
    rest = [case for group in groups[FINDINGS_MAX:] for case, _ in group]
    if rest:
        yield make_finding(
            evidence.full,
            "failed-case",
            evidence=[case.id for case in rest[:EVIDENCE_MAX]],
            message=f"{formatting.pluralize(len(rest), 'more case')} ({len(rest)} of {len(cases)}) failed, each in another way.",
        )


def _failed(
    evidence: Evidence, group: Sequence[SpanInfo], frame: Frame | None, total: int
) -> Finding:
    first = group[0]
    phase = _PHASE.match(_message(first))
    interrupted = first.status == "interrupted"
    kind = (
        "failed-case/interrupted"
        if interrupted
        else f"failed-case/{phase[1]}"
        if phase
        else "failed-case"
    )
    who = formatting.single_line(first.name, 60)
    if len(group) > 1:
        who += f" and {formatting.pluralize(len(group) - 1, 'more case')}"
    how = "never ended" if interrupted else "failed" if len(group) == 1 else "failed alike"
    said = formatting.single_line(_message(first).partition("\n")[0], 100)
    place = f", at {frame}" if frame is not None else ""
    return make_finding(
        evidence,
        "failed-case",
        kind=kind,
        cause=first.id,
        evidence=[case.id for case in group[:EVIDENCE_MAX]],
        message=f"{who} ({len(group)} of {total}) {how}{f': {said}' if said else ''}{place}.",
    )


def _message(case: SpanInfo) -> str:
    return str(case.attributes.get("error.message") or "")


def _key(case: SpanInfo, frame: Frame | None) -> object:
    message = _message(case)
    if frame is None:
        return case.status, _VALUES.sub("…", message)
    # Not the message: what differs in it are the values. But one place may raise several things.
    return frame.file, frame.line, _VALUES.sub("…", message).partition(":")[0].split(" ")[0]


def _frame(evidence: Evidence, case: SpanInfo) -> Frame | None:
    """Where in the program's own code it failed."""
    frame = own_frame(case.attributes.get("error.stack"))
    if frame is not None:
        return frame
    kept = (span for span in evidence.children.get(case.id, ()) if span.type == "file")
    text = next((evidence.input(span) for span in kept if span.name.endswith(_FAILURE)), None)
    return own_frame(text)
