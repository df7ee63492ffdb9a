"""Soft errors: results that say that something failed, of tools that ended well.

Of tool spans their own outputs; where a program does not record its tools, what its models were given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from vestige.limits import KIB
from vestige.query.checks import check, make_finding
from vestige.query.checks.requested_calls import asked_calls, latest_results
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

SOFT_READ_MAX = 16 * KIB
"""A tool that failed politely says so briefly."""

EVIDENCE_MAX = 6

_SOFT_BEGIN = re.compile(
    r"\s*(?:[\w.]*(?:Error|Exception)\b\s*[:(]|error\b\s*[:\-—]|\[?error\]|exception\b\s*:|"
    r"traceback \(most recent call last\)|fatal:|failed to |"
    r"(?:bash: .{0,80}: )?(?:command not found|no such file or directory|permission denied)|"
    r"(?:file|resource|page|key|record|item|user|path)\b.{0,80} (?:was )?(?:not found|does not exist)|"
    r"not found\b|unauthori[sz]ed\b|(?:request )?timed? ?out\b|4\d\d (?:bad request|unauthorized|forbidden|not found)|"
    r"5\d\d (?:internal server error|bad gateway|service unavailable))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One result that says so."""

    cause: SpanInfo
    said: str
    proof: str
    """The command that shows it."""


@check(
    "soft-error",
    title="A tool that ended well says that it failed",
    looks_at="short outputs of tool spans with status ok, or of a run without such spans the results in its "
    "latest requests: an error at the beginning, or JSON that says so",
    severity="hint",
    confidence=0.6,
    false_positives="a tool whose subject is errors: a log search, a documentation page",
    version=2,
)
def soft_error(evidence: Evidence) -> Iterator[Finding]:
    """One for each tool."""
    says, cases = "ended with status ok and says", _executed(evidence)
    if not evidence.of_type("tool"):
        says, cases = "was asked for here, and its result says", _given(evidence)
    found: dict[str, list[_Case]] = {}
    for name, case in cases:
        found.setdefault(name, []).append(case)
    for name, alike in found.items():
        first = alike[0]
        times = f" ({len(alike)} times)" if len(alike) > 1 else ""
        yield make_finding(
            evidence,
            "soft-error",
            kind="tool/soft-error",
            basis="hypothesis",
            message=f"{single_line(name, 60)} {says}{times}: {single_line(first.said, 120)}",
            cause=first.cause.id,
            evidence=[case.cause.id for case in alike[:EVIDENCE_MAX]],
            command=first.proof,
        )


def _executed(evidence: Evidence) -> Iterator[tuple[str, _Case]]:
    """Outputs of tool spans. Bodies are content-addressed: each is looked at once."""
    told: dict[int, str | None] = {}
    for span in evidence.of_type("tool"):
        body = span.output
        if span.status != "ok" or body is None or body.id is None:
            continue
        if not 0 < body.size_bytes <= SOFT_READ_MAX:
            continue
        if body.id not in told:
            told[body.id] = find_soft_error(evidence.output(span) or "")
        said = told[body.id]
        if said:
            yield span.name, _Case(span, said, f"vestige body {span.short_id}")


def _given(evidence: Evidence) -> Iterator[tuple[str, _Case]]:
    """Results that models were given, by the tool that was asked for."""
    asked = {each.call.id: each for each in asked_calls(evidence) if each.call.id}
    for given, result in latest_results(evidence):
        by = asked.pop(result.call_id or "", None)  # told once, however often it is sent again
        said = result.text[:200] if result.is_error else None
        if said is None and len(result.text) <= SOFT_READ_MAX:
            said = find_soft_error(result.text)
        if said is not None and by is not None:
            yield by.call.name, _Case(by.span, said, f"vestige body {given.short_id} --in")


def find_soft_error(text: str) -> str | None:
    """The words of a failure that a result holds, if it does."""
    stripped = text.lstrip()
    if stripped[:1] == "{":
        try:
            value = msgspec.json.decode(stripped)
        except (msgspec.DecodeError, ValueError):
            value = None
        if isinstance(value, dict):
            return _said_in(value)
    if stripped[:1] == '"':
        stripped = stripped[1:]
    match = _SOFT_BEGIN.match(stripped)
    return stripped[:200] if match else None


def _said_in(value: dict[str, object]) -> str | None:
    for key in ("error", "errors", "exception"):
        if value.get(key):
            return f"{key}: {value[key]}"
    for key in ("isError", "is_error"):
        if value.get(key) is True:
            return f"{key}: true"
    for key in ("success", "ok"):
        if value.get(key) is False:
            return f"{key}: false"
    for key in ("exit_code", "returncode"):
        if type(value.get(key)) is int and value[key] != 0:
            return f"{key}: {value[key]}"
    return None
