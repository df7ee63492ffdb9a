"""The same again: loops, the same error over and over, retry storms.

Arguments count: the same tool with other arguments is progress. They are compared as JSON,
so that another order of keys is no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vestige.limits import KIB
from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.progress.repetition import Repeat, find_repeats
from vestige.query.checks.requested_calls import asked_calls, latest_results
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

ROUNDS_MIN = 3
"""Twice may be a check of the first time; three times the same is a habit."""

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

ARGUMENTS_MAX = 64 * KIB
"""Longer arguments are compared as they are."""

ARGUMENTS_READ_MAX = 2_000
"""Different arguments that are read, of the tools with the fewest first; others are compared as
they are. A loop has few, however their keys are ordered."""

FAILED = frozenset(["error", "timeout"])

_NOT_ARGUMENTS = frozenset(["tool_call_id", "tool_name", "attempt", "provider", "model"])
"""Attributes of a tool span that do not say what was asked of it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, as the run shows it."""

    span: SpanInfo
    """The tool's own, or that of the model which asked for it."""
    name: str
    arguments: object
    """Equal for calls that ask for the same."""
    result: object | None
    """Equal for calls that gave the same. None: it is not known."""

    @property
    def key(self) -> tuple[str, object]:
        return self.name, self.arguments


# --- loops ------------------------------------------------------------------------------------


@check(
    "loop",
    title="The same calls again and again",
    looks_at="tool calls in order with their arguments, patterns of any period, 3 rounds or more",
    severity="warning",
    confidence=0.9,
    false_positives="polling that is meant: where results differ from round to round, or arguments are "
    "not recorded, it is a hint",
    version=3,
)
def loop(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for calls in _sequences(evidence):
        for repeat in find_repeats([call.key for call in calls], ROUNDS_MIN):
            if found < FINDINGS_MAX:
                yield _loop(evidence, calls, repeat)
            found += 1
        if found:
            return  # what the whole sequence shows, its parts need not show again


def _sequences(evidence: Evidence) -> Iterator[list[Call]]:
    """All tool calls; then each component's own, which others may have interrupted."""
    calls = _executed(evidence) or _asked(evidence)
    yield calls
    by_component: dict[str, list[Call]] = {}
    for call in calls:
        by_component.setdefault(call.span.component, []).append(call)
    if len(by_component) > 1:
        yield from by_component.values()


def _executed(evidence: Evidence) -> list[Call]:
    """Tool spans with what was called. Bodies are content-addressed: each is read once, and
    those of a tool that is called with ever new arguments not at all."""
    tools = evidence.of_type("tool")
    by_name: dict[str, set[int | None]] = {}
    for span in tools:
        by_name.setdefault(span.name, set()).add(span.input.id if span.input else None)
    to_read: set[str] = set()
    count = 0
    for name in sorted(by_name, key=lambda name: (len(by_name[name]), name)):
        count += len(by_name[name])
        if count <= ARGUMENTS_READ_MAX:
            to_read.add(name)
    known: dict[int, object] = {}

    def arguments(span: SpanInfo) -> object:
        ref = span.input
        if ref is None:
            return _told(span)
        if ref.id is None:
            return span.id  # lost: who knows
        if span.name not in to_read or ref.size_bytes > ARGUMENTS_MAX:
            return ref.id
        if ref.id not in known:
            text = evidence.input(span)
            known[ref.id] = ref.id if text is None else _normal(text)
        return known[ref.id]

    return [Call(span, span.name, arguments(span), _result(span)) for span in tools]


def _asked(evidence: Evidence) -> list[Call]:
    """What models asked for, where the program does not record its tools; and what they were given."""
    given = {result.call_id: result.text for _, result in latest_results(evidence)}
    return [
        Call(
            asked.span,
            asked.call.name,
            _normal(asked.call.arguments),
            given.get(asked.call.id) if asked.call.id else None,
        )
        for asked in asked_calls(evidence)
    ]


def _told(span: SpanInfo) -> object:
    """What attributes say of a call without a body: some programs keep arguments there."""
    return frozenset(
        (name, value)
        for name, value in span.attributes.items()
        if name not in _NOT_ARGUMENTS and not name.startswith("error.")
    )


def _normal(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _loop(evidence: Evidence, calls: Sequence[Call], repeat: Repeat) -> Finding:
    looped = calls[repeat.begin : repeat.end]
    spans = [call.span for call in looped]
    first = looped[: repeat.period]
    names = " > ".join(formatting.single_line(call.name, 40) for call in first[:4])
    if repeat.period > 4:
        names += f" > {repeat.period - 4} more"
    what = "the same call" if repeat.period == 1 else f"the same {repeat.period} calls"
    same, results = _say_results(looped, repeat.period)
    told = all(call.span.type != "tool" or call.span.input is not None for call in first)
    arguments = "arguments included" if told else "as far as known: arguments are not recorded"
    sure = same and told
    return make_finding(
        evidence,
        "loop",
        kind="loop/exact" if repeat.period == 1 else "loop/cyclic",
        severity="warning" if sure else "hint",
        confidence=0.9 if sure else 0.5,
        basis="measured" if sure else "hypothesis",
        cause=spans[0].id,
        evidence=[span.id for span in spans[:: repeat.period]][:EVIDENCE_MAX],
        message=f"{names}: {what} {repeat.count} times in a row, {arguments} "
        f"({len(spans)} calls, {results}).",
    )


def _say_results(looped: Sequence[Call], period: int) -> tuple[bool, str]:
    """Whether every round gave what the one before gave. The last calls may have no result yet."""
    rounds = [[call.result for call in looped[place::period]] for place in range(period)]
    known = [[result for result in results if result is not None] for results in rounds]
    if any(each != results[0] for results in known for each in results[1:]):
        return False, "results differ, so it may be polling"
    if any(len(results) < ROUNDS_MIN - 1 for results in known):
        return False, "results not seen, so it may be polling"
    return True, "same results"


def _result(span: SpanInfo) -> object:
    body = span.output.id if span.output is not None else None
    return span.status, body, span.attributes.get("error.message")


# --- the same error ---------------------------------------------------------------------------


@check(
    "repeated-tool-error",
    title="The same tool fails in the same way, and is called again",
    looks_at="tool spans that failed: tool, error type, error message",
    severity="warning",
    confidence=0.9,
    false_positives="a tool that is tried until something else is ready",
)
def repeated_tool_error(evidence: Evidence) -> Iterator[Finding]:
    by_error: dict[tuple[str, str], list[SpanInfo]] = {}
    for span in evidence.of_type("tool"):
        if span.status in FAILED:
            by_error.setdefault((span.name, _error_text(evidence, span)), []).append(span)
    found = [(key, spans) for key, spans in by_error.items() if len(spans) >= ROUNDS_MIN]
    for (name, error), spans in found[:FINDINGS_MAX]:
        yield make_finding(
            evidence,
            "repeated-tool-error",
            cause=spans[0].id,
            evidence=[span.id for span in spans[:EVIDENCE_MAX]],
            message=f"{formatting.single_line(name, 60)} failed {len(spans)} times with the same error: "
            f"{formatting.single_line(error, 160) or 'no message'}.",
        )


def _error_text(evidence: Evidence, span: SpanInfo) -> str:
    kind, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    if kind or message:
        return f"{kind or 'error'}: {message or ''}"
    return (evidence.output(span) or "")[:1000]


# --- retries ----------------------------------------------------------------------------------


@check(
    "retry-storm",
    title="The same request is sent again and again, and fails",
    looks_at="llm and http spans: attribute `attempt`, and identical input bodies with errors",
    severity="warning",
    confidence=0.85,
    false_positives="a provider that is down, and a program that patiently waits for it",
)
def retry_storm(evidence: Evidence) -> Iterator[Finding]:
    by_request: dict[tuple[str, str, object], list[SpanInfo]] = {}
    for span in evidence.of_type("llm", "http"):
        if span.input is not None and span.input.id is not None:
            by_request.setdefault((span.type, span.name, span.input.id), []).append(span)
    found = 0
    told: set[str] = set()
    for (_, name, _), spans in by_request.items():
        if is_storm(spans):
            failed = [span for span in spans if span.status in FAILED]
            told.update(span.id for span in spans)
            found += 1
            if found <= FINDINGS_MAX:
                yield _storm(evidence, name, failed, len(spans))
    attempts = [
        span
        for span in evidence.of_type("llm", "http")
        if _attempt(span) >= ROUNDS_MIN and span.id not in told
    ]
    if attempts:
        worst = max(attempts, key=_attempt)
        yield make_finding(
            evidence,
            "retry-storm",
            kind="retry-storm/attempts",
            cause=worst.id,
            evidence=[span.id for span in attempts[:EVIDENCE_MAX]],
            message=f"{formatting.single_line(worst.name, 60)} needed attempt {_attempt(worst)}; "
            f"{formatting.pluralize(len(attempts), 'request')} reached attempt {ROUNDS_MIN} or more.",
        )


def is_storm(same: Sequence[SpanInfo]) -> bool:
    """Of the calls that sent one request."""
    failed = sum(span.status in FAILED for span in same)
    return len(same) >= ROUNDS_MIN and failed >= ROUNDS_MIN - 1


def _storm(evidence: Evidence, name: str, failed: list[SpanInfo], sent: int) -> Finding:
    error = formatting.single_line(_error_text(evidence, failed[0]), 120)
    return make_finding(
        evidence,
        "retry-storm",
        kind="retry-storm/same-request",
        cause=failed[0].id,
        evidence=[span.id for span in failed[:EVIDENCE_MAX]],
        message=f"{formatting.single_line(name, 60)}: the same request was sent {sent} times and failed "
        f"{len(failed)} times, first with: {error or 'no message'}.",
    )


def _attempt(span: SpanInfo) -> int:
    value = span.attributes.get("attempt")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
