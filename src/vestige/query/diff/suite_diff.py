"""Compare two runs of a test suite: newly failing, newly passing, slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo

SLOWER_TIMES = 1.5
SLOWER_NS = 100_000_000
"""A case counts as slower if it exceeds both: 1.5 times the duration, and 0.1 s more."""

SHOWN_MAX = 10
"""Cases shown per section. `--json` has all."""

_FAILED = ("fail", "unknown")


@dataclass(slots=True)
class SuiteDiff:
    """Test cases of two runs, by how they changed. Pairs are (case in A, case in B)."""

    newly_failing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    newly_passing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    slower: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    still_failing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    added: list[SpanInfo] = field(default_factory=list)
    removed: list[SpanInfo] = field(default_factory=list)

    def lines(self) -> list[str]:
        lines = [
            *_section("newly failing", [f"{_name(b)}{_error(b)}" for _, b in self.newly_failing]),
            *_section("newly passing", [_name(b) for _, b in self.newly_passing]),
            *_section(
                "slower",
                [f"{_name(b)}: {_duration(a)}, now {_duration(b)}" for a, b in self.slower],
            ),
            *_section("only in B", [f"{_name(b)}: {_outcome(b)}" for b in self.added]),
            *_section("only in A", [f"{_name(a)}: {_outcome(a)}" for a in self.removed]),
        ]
        if self.still_failing:
            lines.append(f"still failing: {formatting.pluralize(len(self.still_failing), 'case')}")
        return lines or ["no test case changed"]

    def data(self) -> dict[str, Any]:
        pairs = ("newly_failing", "newly_passing", "slower", "still_failing")
        data: dict[str, Any] = {
            kind: [
                {"case": b.name, "a": a.short_id, "b": b.short_id} for a, b in getattr(self, kind)
            ]
            for kind in pairs
        }
        data["new"] = [{"case": span.name, "b": span.short_id} for span in self.added]
        data["gone"] = [{"case": span.name, "a": span.short_id} for span in self.removed]
        return data


def diff_suites(a: Evidence, b: Evidence) -> SuiteDiff | None:
    """Compare the test cases of two runs; None if a run has none."""
    a_cases, b_cases = _cases(a.of_type("test")), _cases(b.of_type("test"))
    if not a_cases or not b_cases:
        return None
    diff = SuiteDiff()
    for key, case in b_cases.items():
        before = a_cases.get(key)
        if before is None:
            diff.added.append(case)
            continue
        failed_before = _outcome(before) in _FAILED
        if _outcome(case) in _FAILED:
            (diff.still_failing if failed_before else diff.newly_failing).append((before, case))
        elif failed_before:
            diff.newly_passing.append((before, case))
        if _is_slower(before, case):
            diff.slower.append((before, case))
    diff.removed = [case for key, case in a_cases.items() if key not in b_cases]
    diff.slower.sort(key=lambda pair: (pair[0].duration_ns or 0) - (pair[1].duration_ns or 0))
    return diff


def _cases(spans: Iterable[SpanInfo]) -> dict[tuple[str, int], SpanInfo]:
    """Return the cases by name and attempt: a rerun is compared with the same rerun."""
    attempts: Counter[str] = Counter()
    cases = {}
    for span in spans:
        attempts[span.name] += 1
        cases[span.name, attempts[span.name]] = span
    return cases


def _is_slower(a: SpanInfo, b: SpanInfo) -> bool:
    before, now = a.duration_ns or 0, b.duration_ns or 0
    return now >= before * SLOWER_TIMES and now - before >= SLOWER_NS


def _outcome(span: SpanInfo) -> str:
    outcome = span.attributes.get("outcome")
    if isinstance(outcome, str):
        return outcome
    return "pass" if span.status == "ok" else "fail"


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    shown = [f"  {line}" for line in lines[:SHOWN_MAX]]
    if len(lines) > SHOWN_MAX:
        shown.append(f"  … {len(lines) - SHOWN_MAX} more")
    return [f"{title} ({len(lines)}):", *shown]


def _name(span: SpanInfo) -> str:
    return f"{span.short_id} {formatting.single_line(span.name, 100)}"


def _error(span: SpanInfo) -> str:
    message = span.attributes.get("error.message")
    return f": {formatting.single_line(str(message), 120)}" if message else ""


def _duration(span: SpanInfo) -> str:
    return formatting.duration(span.duration_ns or 0)
