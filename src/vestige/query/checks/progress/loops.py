"""Repetition: loops of tool calls, repeated tool errors, retry storms.

The same tool with other arguments is progress, not a loop. Arguments are compared as JSON, so that
the order of keys does not matter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vestige.limits import KIB
from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.progress.repetition import Repeat, find_repeats
from vestige.query.checks.requested_calls import (
    iter_requested_calls,
    latest_results,
    model_calls,
)
from vestige.query.checks.tools.failed_tools import find_call_at_fault
from vestige.query.evidence import Evidence
from vestige.query.trajectory import build_trajectory
from vestige.query.trajectory.types import Conversation
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

ROUNDS_MIN = 3
"""A second call may verify the first. Three equal calls are a loop."""

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

ARGUMENTS_MAX = 64 * KIB
"""Longer arguments are compared by body id, without parsing."""

ARGUMENTS_READ_MAX = 2_000
"""Bodies that are parsed, for the tools with the fewest different arguments first.

Other arguments are compared by body id. A loop has few different arguments.
"""

FAILED = frozenset(["error", "timeout"])

_NOT_ARGUMENTS = frozenset(["tool_call_id", "tool_name", "attempt", "provider", "model"])
"""Attributes of a tool span that are not arguments."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with comparable arguments and result."""

    span: SpanInfo
    """The tool span, or the model call that requested it."""
    name: str
    arguments: object
    """Equal for calls with equal arguments."""
    result: object | None
    """Equal for calls with equal results; None if it is unknown."""
    conversation: Conversation | None = None
    """The conversation whose model requested it, if that is known."""

    @property
    def key(self) -> tuple[str, object]:
        return self.name, self.arguments


# --- loops ------------------------------------------------------------------------------------


@check(
    "loop",
    title="Repeated tool calls",
    looks_at="tool calls in order with their arguments: patterns of any length, at least 3 rounds",
    severity="warning",
    confidence=0.9,
    false_positives="intended polling: only a hint if results differ between rounds, or if "
    "arguments are not recorded",
    version=6,
)
def loop(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for calls in _sequences(evidence):
        for repeat in find_repeats([call.key for call in calls], ROUNDS_MIN):
            looped = calls[repeat.begin : repeat.end]
            if _is_one_error(looped) or _is_batch(looped):
                continue  # `repeated-tool-error` reports an error
            if found < FINDINGS_MAX:
                yield _to_finding(evidence, calls, repeat)
            found += 1
        if found:
            return  # loops of a component would be reported twice


def _is_one_error(calls: Sequence[Call]) -> bool:
    """Return whether the calls of one tool all failed with the same error."""
    if any(call.span.type != "tool" or call.span.status not in FAILED for call in calls):
        return False
    return len({(call.name, call.result) for call in calls}) == 1


def _is_batch(calls: Sequence[Call]) -> bool:
    """Return whether the calls are of one agent that was asked one question after the other."""
    questions = Counter(
        (call.conversation.agent, call.conversation.opening) if call.conversation else None
        for call in calls
    )
    return None not in questions and max(questions.values()) < ROUNDS_MIN


def _sequences(evidence: Evidence) -> Iterator[list[Call]]:
    """Yield all tool calls, then those of each component without interleaved others.

    Each conversation has a sequence of its own if several were open at the same time: the order
    of their calls is chance.
    """
    executed = _executed_calls(evidence)
    calls = executed or _requested_calls(evidence)
    if not executed:
        # Requests of a service or a batch are of many conversations, whose calls may be equal.
        yield from _by_conversation(evidence, calls)
        return
    by_conversation: dict[int | None, list[Call]] = {}
    for call in calls:
        index = call.conversation.index if call.conversation is not None else None
        by_conversation.setdefault(index, []).append(call)
    if len(by_conversation) > 1 and _overlap(evidence, by_conversation.keys()):
        yield from by_conversation.values()
        return
    yield calls
    by_component: dict[str, list[Call]] = {}
    for call in calls:
        by_component.setdefault(call.span.component, []).append(call)
    if len(by_component) > 1:
        yield from by_component.values()


def _overlap(evidence: Evidence, indexes: Collection[int | None]) -> bool:
    """Return whether one of these conversations began before another one ended."""
    trajectory = evidence.once(build_trajectory)
    times: dict[int, tuple[int, int]] = {}
    for step in trajectory.steps:
        if step.conversation in indexes:
            end = step.started_ns + (step.duration_ns or 0)
            begin, latest = times.get(step.conversation, (step.started_ns, end))
            times[step.conversation] = min(begin, step.started_ns), max(latest, end)
    ordered = sorted(times.values())
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))


def _by_conversation(evidence: Evidence, calls: list[Call]) -> Iterator[list[Call]]:
    """Yield the calls of each conversation: its requests begin alike and only grow."""
    turns = {model.span.id: model for model in model_calls(evidence)}
    open_conversations: dict[str, list[Call]] = {}
    sizes: dict[str, int] = {}
    done: list[list[Call]] = []
    for call in calls:
        model = turns.get(call.span.id)
        opening = model.opening if model is not None else ""
        size = sum(model.results.values()) if model is not None else 0
        if opening and size < sizes.get(opening, 0):
            done.append(open_conversations.pop(opening, []))  # a new one with the same question
        sizes[opening] = size
        open_conversations.setdefault(opening, []).append(call)
    yield from (*done, *open_conversations.values())


def _executed_calls(evidence: Evidence) -> list[Call]:
    """Return the calls of tool spans.

    Equal bodies have one id and are parsed once. Bodies of a tool that is called with many
    different arguments are not parsed.
    """
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
            return _attribute_arguments(span)
        if ref.id is None:
            return span.id  # the body is missing, so the call counts as different
        if span.name not in to_read or ref.size_bytes > ARGUMENTS_MAX:
            return ref.id
        if ref.id not in known:
            text = evidence.input(span)
            known[ref.id] = ref.id if text is None else _normalize(text)
        return known[ref.id]

    trajectory = evidence.once(build_trajectory)

    def conversation(span: SpanInfo) -> Conversation | None:
        step = trajectory.step_of(span.id)
        return None if step is None else trajectory.conversations[step.conversation]

    return [
        Call(span, span.name, arguments(span), _result(span), conversation(span)) for span in tools
    ]


def _requested_calls(evidence: Evidence) -> list[Call]:
    """Return the calls that models requested, for a run without tool spans."""
    results = {result.call_id: result.text for _, result in latest_results(evidence)}
    return [
        Call(
            requested.span,
            requested.call.name,
            _normalize(requested.call.arguments),
            results.get(requested.call.id) if requested.call.id else None,
        )
        for requested in iter_requested_calls(evidence)
    ]


def _attribute_arguments(span: SpanInfo) -> object:
    """Return the attributes of a call without a body: some programs record arguments there."""
    return frozenset(
        (name, value)
        for name, value in span.attributes.items()
        if name not in _NOT_ARGUMENTS and not name.startswith("error.")
    )


def _normalize(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _to_finding(evidence: Evidence, calls: Sequence[Call], repeat: Repeat) -> Finding:
    looped = calls[repeat.begin : repeat.end]
    spans = [call.span for call in looped]
    first = looped[: repeat.period]
    names = " > ".join(formatting.single_line(call.name, 40) for call in first[:4])
    if repeat.period > 4:
        names += f" > {repeat.period - 4} more"
    same_results, results = _compare_results(looped, repeat.period)
    recorded = all(call.span.type != "tool" or call.span.input is not None for call in first)
    if not recorded:
        details = f" (arguments not recorded; {results})"
    elif same_results:
        details = " with the same arguments and results"
    else:
        details = f" with the same arguments ({results})"
    sure = same_results and recorded
    return make_finding(
        evidence,
        "loop",
        kind="loop/exact" if repeat.period == 1 else "loop/cyclic",
        severity="warning" if sure else "hint",
        confidence=0.9 if sure else 0.5,
        basis="measured" if sure else "hypothesis",
        cause=spans[0].id,
        evidence=[span.id for span in spans[:: repeat.period]][:EVIDENCE_MAX],
        message=f"{names} called {repeat.count} times in a row{details}.",
    )


def _compare_results(looped: Sequence[Call], period: int) -> tuple[bool, str]:
    """Return whether all rounds have the same results. The last calls may have none yet."""
    rounds = [[call.result for call in looped[index::period]] for index in range(period)]
    known = [[result for result in results if result is not None] for results in rounds]
    if any(result != results[0] for results in known for result in results[1:]):
        return False, "results differ, so it may be polling"
    if any(len(results) < ROUNDS_MIN - 1 for results in known):
        return False, "results not recorded, so it may be polling"
    return True, "same results"


def _result(span: SpanInfo) -> object:
    body = span.output.id if span.output is not None else None
    return span.status, body, span.attributes.get("error.message")


# --- repeated errors --------------------------------------------------------------------------


@check(
    "repeated-tool-error",
    title="Repeated tool error",
    looks_at="failed tool spans: tool, error type, error message",
    severity="warning",
    confidence=0.9,
    false_positives="a tool that is called until something else is ready",
    version=2,
)
def repeated_tool_error(evidence: Evidence) -> Iterator[Finding]:
    by_error: dict[tuple[str, str], list[SpanInfo]] = {}
    for span in evidence.of_type("tool"):
        if span.status in FAILED:
            by_error.setdefault((span.name, _error_text(evidence, span)), []).append(span)
    repeated = [(key, spans) for key, spans in by_error.items() if len(spans) >= ROUNDS_MIN]
    for (name, error), spans in repeated[:FINDINGS_MAX]:
        requester = find_call_at_fault(evidence, spans[0], error)
        yield make_finding(
            evidence,
            "repeated-tool-error",
            cause=spans[0].id if requester is None else requester.id,
            evidence=[span.id for span in spans[:EVIDENCE_MAX]],
            message=f"{formatting.single_line(name, 60)} failed {len(spans)} times with the same "
            f"error: {formatting.single_line(error, 160) or 'no message'}.",
        )


def _error_text(evidence: Evidence, span: SpanInfo) -> str:
    kind, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    if kind or message:
        return f"{kind or 'error'}: {message or ''}"
    return (evidence.output(span) or "")[:1000]


# --- retries ----------------------------------------------------------------------------------


@check(
    "retry-storm",
    title="Retry storm",
    looks_at="llm and http spans: attribute `attempt`, and failed calls with equal input bodies",
    severity="warning",
    confidence=0.85,
    false_positives="a program that waits for a provider that is down",
)
def retry_storm(evidence: Evidence) -> Iterator[Finding]:
    by_request: dict[tuple[str, str, object], list[SpanInfo]] = {}
    for span in evidence.of_type("llm", "http"):
        if span.input is not None and span.input.id is not None:
            by_request.setdefault((span.type, span.name, span.input.id), []).append(span)
    found = 0
    reported: set[str] = set()
    for spans in by_request.values():
        if is_storm(spans):
            failed = [span for span in spans if span.status in FAILED]
            reported.update(span.id for span in spans)
            found += 1
            if found <= FINDINGS_MAX:
                yield _storm_finding(evidence, failed, len(spans))
    attempts = [
        span
        for span in evidence.of_type("llm", "http")
        if _attempt(span) >= ROUNDS_MIN and span.id not in reported
    ]
    if attempts:
        worst = max(attempts, key=_attempt)
        yield make_finding(
            evidence,
            "retry-storm",
            kind="retry-storm/attempts",
            cause=worst.id,
            evidence=[span.id for span in attempts[:EVIDENCE_MAX]],
            message=f"{formatting.single_line(worst.name, 60)} reached attempt {_attempt(worst)}; "
            f"{formatting.pluralize(len(attempts), 'request')} needed {ROUNDS_MIN} or more.",
        )


def is_storm(calls: Sequence[SpanInfo]) -> bool:
    """Return whether calls with an equal request are a retry storm."""
    failed = sum(call.status in FAILED for call in calls)
    return len(calls) >= ROUNDS_MIN and failed >= ROUNDS_MIN - 1


def _storm_finding(evidence: Evidence, failed: list[SpanInfo], sent: int) -> Finding:
    error = formatting.single_line(_error_text(evidence, failed[0]), 120)
    return make_finding(
        evidence,
        "retry-storm",
        kind="retry-storm/same-request",
        cause=failed[0].id,
        evidence=[span.id for span in failed[:EVIDENCE_MAX]],
        message=f"Request retried {sent - 1} times: {error or 'no message'}",
    )


def _attempt(span: SpanInfo) -> int:
    value = span.attributes.get("attempt")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
