"""Model calls that failed and that nobody made good.

A program that goes on, or leaves by an exit code, raises nothing that others could name. A request that is
sent again and again is told by `retry-storm`, one that is too long by `context-pressure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.progress.loops import FAILED, is_storm
from vestige.query.checks.progress.pace import was_too_long
from vestige.query.checks.wording import format_error, named
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

_BAD_ENDS = frozenset(["error", "timeout", "interrupted"])


@check(
    "failed-call",
    title="A model call failed, and was not made good",
    looks_at="llm spans that ended with an error or a timeout, or were given up, and whether the same request was answered later",
    severity="error",
    confidence=0.9,
    false_positives="a program that does as well without the answer, or asks another model: a hint, "
    "where calls beside it were answered later",
)
def failed_call(evidence: Evidence) -> Iterator[Finding]:
    alike: dict[tuple[str, str], list[SpanInfo]] = {}
    for call in _not_made_good(evidence):
        alike.setdefault((_kind(call), format_error(evidence, call)), []).append(call)
    for (kind, said), calls in list(alike.items())[:FINDINGS_MAX]:
        more = f" ({len(calls)} calls, this is the first)" if len(calls) > 1 else ""
        how = _HOW.get(kind, "failed")
        if kind == "call/given-up" and calls[0].duration_ns is not None:
            how += f" after {formatting.duration(calls[0].duration_ns)} without a byte of an answer"
        yield make_finding(
            evidence,
            "failed-call",
            kind=kind,
            severity=min((_severity(evidence, call) for call in calls), key=_GRAVITY.index),
            cause=calls[0].id,
            evidence=[call.id for call in calls[:EVIDENCE_MAX]],
            message=f"{named(calls[0])} {how}, and the same was never answered{more}: {said}",
        )


_HOW = {"call/broken-stream": "broke off in its answer", "call/given-up": "was cancelled"}
_GRAVITY: Sequence[Severity] = ("error", "warning", "hint")


def _not_made_good(evidence: Evidence) -> Iterator[SpanInfo]:
    by_request: dict[object, list[SpanInfo]] = {}
    for call in evidence.model_calls:
        by_request.setdefault(_request_of(call), []).append(call)
    for calls in by_request.values():
        if is_storm(calls) or not (calls[-1].status in FAILED or _is_given_up(calls[-1])):
            continue
        if not was_too_long(evidence, calls[-1]):
            yield calls[-1]


def _is_given_up(call: SpanInfo) -> bool:
    """Cancelled while nothing had come: `asyncio.wait_for`, and a sub-agent that hangs."""
    told = call.attributes
    return call.status == "cancelled" and "status_code" not in told and "error.type" in told


def _request_of(call: SpanInfo) -> object:
    """What was asked; of a call without its body, whom."""
    if call.input is not None and call.input.id is not None:
        return call.name, call.input.id
    return call.name, call.parent_id, call.attributes.get("model")


def _severity(evidence: Evidence, call: SpanInfo) -> Severity:
    if call.status == "cancelled":
        return "hint"  # it may be meant: the first of several answers is enough
    beside = evidence.beside("llm", call)
    if any(
        each.status == "ok" and evidence.places[each.id] > evidence.places[call.id]
        for each in beside
    ):
        return "hint"
    return "error" if evidence.run.info.outcome in _BAD_ENDS else "warning"


def _kind(call: SpanInfo) -> str:
    code = call.attributes.get("status_code")
    if call.status == "timeout":
        return "call/timeout"
    if call.status == "cancelled":
        return "call/given-up"
    if not isinstance(code, int):
        return "call/not-reached"
    if code < 400:
        return "call/broken-stream" if call.attributes.get("response.partial") else "call/failed"
    if code in (401, 403):
        return "call/not-allowed"
    if code == 429:
        return "call/rate-limited"
    return "call/refused" if code < 500 else "call/server-error"
