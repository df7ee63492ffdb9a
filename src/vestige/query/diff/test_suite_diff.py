"""Two runs of a test suite side by side: what newly fails, what newly passes, what got slower.

diff_tests(evidence, other)      # None: one of them has no cases
"""

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
"""A case is slower when it took half as long again, and a tenth of a second more."""

SHOWN_MAX = 10
"""Cases of one kind; all of them: --json."""

_BAD = ("fail", "unknown")


@dataclass(slots=True)
class TestsDiff:
    """Pairs of a case then and now."""

    newly_failing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    newly_passing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    slower: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    still_failing: list[tuple[SpanInfo, SpanInfo]] = field(default_factory=list)
    new: list[SpanInfo] = field(default_factory=list)
    gone: list[SpanInfo] = field(default_factory=list)

    def lines(self) -> list[str]:
        told: list[str] = []
        told += _told(
            "newly failing", [f"{b.short_id} {_name(b)}{_why(b)}" for _, b in self.newly_failing]
        )
        told += _told("newly passing", [f"{b.short_id} {_name(b)}" for _, b in self.newly_passing])
        told += _told(
            "slower",
            [f"{b.short_id} {_name(b)}: {_took(a)}, now {_took(b)}" for a, b in self.slower],
        )
        told += _told("only in B", [f"{b.short_id} {_name(b)}: {_outcome(b)}" for b in self.new])
        told += _told("only in A", [f"{a.short_id} {_name(a)}: {_outcome(a)}" for a in self.gone])
        if self.still_failing:
            told.append(f"still failing: {formatting.pluralize(len(self.still_failing), 'case')}")
        return told or ["every case went as before"]

    def data(self) -> dict[str, Any]:
        pairs = ("newly_failing", "newly_passing", "slower", "still_failing")
        found: dict[str, Any] = {
            kind: [
                {"case": b.name, "a": a.short_id, "b": b.short_id} for a, b in getattr(self, kind)
            ]
            for kind in pairs
        }
        found["new"] = [{"case": span.name, "b": span.short_id} for span in self.new]
        found["gone"] = [{"case": span.name, "a": span.short_id} for span in self.gone]
        return found


def diff_tests(a: Evidence, b: Evidence) -> TestsDiff | None:
    """Cases are the same by their name; of reruns, the first with the first."""
    was, now = _cases(a.of_type("test")), _cases(b.of_type("test"))
    if not was or not now:
        return None
    found = TestsDiff()
    for key, span in now.items():
        before = was.get(key)
        if before is None:
            found.new.append(span)
            continue
        failed, fails = _outcome(before) in _BAD, _outcome(span) in _BAD
        if fails:
            (found.still_failing if failed else found.newly_failing).append((before, span))
        elif failed:
            found.newly_passing.append((before, span))
        if _is_slower(before, span):
            found.slower.append((before, span))
    found.gone = [span for key, span in was.items() if key not in now]
    found.slower.sort(key=lambda pair: (pair[0].duration_ns or 0) - (pair[1].duration_ns or 0))
    return found


def _cases(spans: Iterable[SpanInfo]) -> dict[tuple[str, int], SpanInfo]:
    met: Counter[str] = Counter()
    found = {}
    for span in spans:
        met[span.name] += 1
        found[span.name, met[span.name]] = span
    return found


def _is_slower(a: SpanInfo, b: SpanInfo) -> bool:
    before, now = a.duration_ns or 0, b.duration_ns or 0
    return now >= before * SLOWER_TIMES and now - before >= SLOWER_NS


def _outcome(span: SpanInfo) -> str:
    told = span.attributes.get("outcome")
    if isinstance(told, str):
        return told
    return "pass" if span.status == "ok" else "fail"


def _told(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    shown = [f"  {line}" for line in lines[:SHOWN_MAX]]
    if len(lines) > SHOWN_MAX:
        shown.append(f"  … {len(lines) - SHOWN_MAX} more")
    return [f"{title} ({len(lines)}):", *shown]


def _name(span: SpanInfo) -> str:
    return formatting.single_line(span.name, 100)


def _why(span: SpanInfo) -> str:
    message = span.attributes.get("error.message")
    return f": {formatting.single_line(str(message), 120)}" if message else ""


def _took(span: SpanInfo) -> str:
    return formatting.duration(span.duration_ns or 0)
