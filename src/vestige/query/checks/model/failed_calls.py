"""Model calls that failed without a successful retry.

They matter most where no exception shows them: the program continued, or only set an exit code.
`retry-storm` reports repeated requests, `context-pressure` reports requests that are too long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.finding_text import describe_error, format_error
from vestige.query.checks.model.refusals import classify_refusal
from vestige.query.checks.progress.loops import FAILED, is_storm
from vestige.query.checks.progress.time_and_usage import was_too_long
from vestige.query.checks.requested_calls import parse_json
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

_FAILED_OUTCOMES = frozenset(["error", "timeout", "interrupted"])


@check(
    "failed-call",
    title="Model call failed",
    looks_at="llm spans that failed, timed out or were cancelled, and whether the same request "
    "succeeded later",
    severity="error",
    confidence=0.9,
    false_positives="a program that does not need the response, or calls another model: only a "
    "hint if later calls of the same parent succeeded",
    version=2,
)
def failed_call(evidence: Evidence) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[SpanInfo]] = {}
    for call in _unrecovered_calls(evidence):
        error = format_error(evidence, call)
        groups.setdefault((_kind(call, error), error), []).append(call)
    for (kind, _), calls in list(groups.items())[:FINDINGS_MAX]:
        count = f" ({len(calls)} calls)" if len(calls) > 1 else ""
        event = _EVENTS.get(kind, "Model call failed")
        if kind == "call/given-up" and calls[0].duration_ns is not None:
            event += f" after {formatting.duration(calls[0].duration_ns)} without a response"
        yield make_finding(
            evidence,
            "failed-call",
            kind=kind,
            severity=min((_severity(evidence, call) for call in calls), key=_SEVERITIES.index),
            cause=calls[0].id,
            evidence=[call.id for call in calls[:EVIDENCE_MAX]],
            message=f"{event}{count}: {describe_error(evidence, calls[0])}"
            f"{_describe_fallback(evidence, calls[-1])}",
        )


_EVENTS = {
    "call/overloaded": "The provider was overloaded",
    "call/rate-limited": "Rate limit of the provider reached",
    "call/quota": "Quota of the account used up",
    "call/policy": "The provider refused the request for its policy",
    "call/too-long": "The request exceeded the context window",
    "call/not-allowed": "The provider refused access",
    "call/not-reached": "The provider was not reached",
    "call/broken-stream": "Model response broke off",
    "call/given-up": "Model call cancelled",
}
_SEVERITIES: Sequence[Severity] = ("error", "warning", "hint")


def _unrecovered_calls(evidence: Evidence) -> Iterator[SpanInfo]:
    """Yield the last call of each request if it failed."""
    by_request: dict[object, list[SpanInfo]] = {}
    for call in evidence.model_calls:
        by_request.setdefault(_request_key(call), []).append(call)
    for calls in by_request.values():
        if is_storm(calls) or not (calls[-1].status in FAILED or _is_abandoned(calls[-1])):
            continue
        if not was_too_long(evidence, calls[-1]):
            yield calls[-1]


def _is_abandoned(call: SpanInfo) -> bool:
    """Return whether the call was cancelled before a response, as `asyncio.wait_for` does."""
    keys = call.attributes
    return call.status == "cancelled" and "status_code" not in keys and "error.type" in keys


def _request_key(call: SpanInfo) -> object:
    """Return a key of equal requests: the body, or parent and model if there is none."""
    if call.input is not None and call.input.id is not None:
        return call.name, call.input.id
    return call.name, call.parent_id, call.attributes.get("model")


def _severity(evidence: Evidence, call: SpanInfo) -> Severity:
    if call.status == "cancelled":
        return "hint"  # may be intended: a program that needs the first of several responses
    place = evidence.places[call.id]
    siblings = evidence.beside("llm", call)
    if any(span.status == "ok" and evidence.places[span.id] > place for span in siblings):
        return "hint"
    return "error" if evidence.run.info.outcome in _FAILED_OUTCOMES else "warning"


def _describe_fallback(evidence: Evidence, call: SpanInfo) -> str:
    """Name the model of all later calls, if the failed one was not used again."""
    place, model = evidence.places[call.id], call.attributes.get("model")
    later = [each for each in evidence.beside("llm", call) if evidence.places[each.id] > place]
    models = {str(each.attributes.get("model")) for each in later}
    if not isinstance(model, str) or len(later) < 2 or len(models) != 1 or models == {model}:
        return ""
    used = formatting.single_line(min(models), 60)
    return (
        f"; all {len(later)} later calls used {used} instead of {formatting.single_line(model, 60)}"
    )


def _kind(call: SpanInfo, error: str) -> str:
    code = call.attributes.get("status_code")
    if call.status == "timeout":
        return "call/timeout"
    if call.status == "cancelled":
        return "call/given-up"
    if isinstance(code, int) and code < 400:
        return "call/broken-stream" if call.attributes.get("response.partial") else "call/failed"
    reason = classify_refusal(code, error)
    if reason is not None:
        return f"call/{reason}"
    if not isinstance(code, int):
        # A span without a status and a URL may be a client's, which raised for its own reasons.
        return "call/not-reached" if "url" in call.attributes else "call/failed"
    return "call/refused"


# --- settings of a retry ------------------------------------------------------------------------

_SETTINGS = (
    "temperature",
    "top_p",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "response_format",
    "tools",
    "tool_choice",
    "stop",
    "stop_sequences",
    "system",
)


@check(
    "changed-retry",
    title="Retry with other settings",
    looks_at="a model call that the provider could not serve, and the next one with the same "
    "model and messages",
    severity="warning",
    confidence=0.8,
    false_positives="a program that changes its settings on purpose after an error of the provider",
)
def changed_retry(evidence: Evidence) -> Iterator[Finding]:
    cases: dict[str, list[tuple[SpanInfo, SpanInfo]]] = {}
    for failed in evidence.model_calls:
        code = failed.attributes.get("status_code")
        if failed.status not in FAILED or (type(code) is int and 400 <= code < 500 and code != 429):
            continue  # a refused request must change
        retry = _find_retry(evidence, failed)
        changes = _changed_settings(evidence, failed, retry) if retry is not None else ""
        if retry is not None and changes:
            cases.setdefault(changes, []).append((failed, retry))
    for changes, found in list(cases.items())[:FINDINGS_MAX]:
        failed, retry = found[0]
        times = f" ({len(found)} times)" if len(found) > 1 else ""
        yield make_finding(
            evidence,
            "changed-retry",
            kind="call/changed-retry",
            cause=retry.id,
            evidence=[retry.id, *(each.id for pair in found for each in pair)][:EVIDENCE_MAX],
            message=f"The retry of {failed.short_id} has other settings: {changes}{times}.",
            command=f"vestige diff {failed.short_id} {retry.short_id}",
        )


def _find_retry(evidence: Evidence, failed: SpanInfo) -> SpanInfo | None:
    """Return the next model call with the same parent."""
    beside = evidence.beside("llm", failed)
    place = evidence.places[failed.id]
    return next((each for each in beside if evidence.places[each.id] > place), None)


def _changed_settings(evidence: Evidence, failed: SpanInfo, retry: SpanInfo) -> str:
    """Return the settings that differ, as text; empty if the retry is another request."""
    before, after = (
        parse_json(evidence.input(failed) or ""),
        parse_json(evidence.input(retry) or ""),
    )
    if not isinstance(before, dict) or not isinstance(after, dict) or before == after:
        return ""
    content = ("model", "messages", "input", "contents")
    if any(before.get(key) != after.get(key) for key in content):
        return ""
    return ", ".join(
        f"{key} {_format_setting(before, key)} → {_format_setting(after, key)}"
        for key in _SETTINGS
        if before.get(key) != after.get(key)
    )


def _format_setting(body: dict[str, object], key: str) -> str:
    value = body.get(key)
    return "not set" if value is None else formatting.single_line(json.dumps(value), 40)
