"""Check histories: requests that a provider rejects, and unintended changes by a transform.

A transform (a provider adapter, a trimmer, a middleware) changes the prompt of a step before it is
sent. The body of the step or prompt span is BEFORE, the body of its model call is AFTER.

Elsewhere: query/checks/model/intended_prompt.py compares the two.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from vestige.providers.chat_types import Request
from vestige.query.checks import check, make_finding
from vestige.query.checks.model.intended_prompt import Change, find_changes
from vestige.query.checks.model.refusals import classify_refusal
from vestige.query.checks.sent_requests import sent_calls
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

UNRELATED_STATUS_CODES = frozenset({401, 403, 404, 407, 408, 409, 425, 429})
"""HTTP errors that do not depend on the history."""

FINDINGS_MAX = 20
"""Limit for changes by a transform: each step may have a different name."""

EVIDENCE_MAX = 6
"""Spans that one finding refers to."""

CLIMB_MAX = 3
"""Levels above a model call that are searched for its prompt."""

_HISTORY_WORDS = re.compile(
    r"tool_use|tool_result|tool_calls?\b|tool_call_id|function ?(?:call|response)|MissingToolResult"
    r"|roles? must alternate|alternat\w+ between|first message must|must be followed by"
    r"|did not have response messages|No tool (?:output|call) found|unexpected role|invalid role"
    r"|non-?empty content|content must not be empty|final assistant content",
    re.IGNORECASE,
)

ANNOUNCEMENT = re.compile(r"compact|summar|trim|repair", re.IGNORECASE)
"""Names of spans that explain a change of the history."""


# --- invalid requests -------------------------------------------------------------------------


@check(
    "invalid-history",
    title="Invalid conversation history",
    looks_at="request bodies that were sent, by the rules of their provider; error responses",
    severity="error",
    confidence=0.95,
    false_positives="a compatible API may accept what the original provider rejects: a warning "
    "if the request was not rejected",
    version=4,
)
def invalid_history(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each set of problems that first occurs in the same request."""
    occurrences: dict[str, _Occurrences] = {}
    refusals: set[str] = set()
    for span in sent_calls(evidence):
        request = evidence.request(span)
        problems = list(request.problems) if request is not None else []
        refusal = find_refusal(evidence, span)
        if not problems and refusal and refusal not in refusals and _HISTORY_WORDS.search(refusal):
            refusals.add(refusal)
            yield _refused_finding(evidence, span, refusal)
        for problem in problems:
            occurrences.setdefault(problem, _Occurrences(span)).add(span, refusal)
    by_first_span: dict[str, list[str]] = {}
    for problem, sent in occurrences.items():
        by_first_span.setdefault(sent.first.id, []).append(problem)
    for problems in by_first_span.values():
        yield _invalid_finding(evidence, problems, occurrences[problems[0]])


@dataclass(slots=True)
class _Occurrences:
    """Calls that sent a problem, and the first rejection."""

    first: SpanInfo
    spans: list[str] = field(default_factory=list)
    count: int = 0
    refused: SpanInfo | None = None
    refusal: str | None = None

    def add(self, span: SpanInfo, refusal: str | None) -> None:
        self.count += 1
        self.spans.append(span.id)
        if refusal and self.refused is None:
            self.refused, self.refusal = span, refusal


def _invalid_finding(evidence: Evidence, problems: list[str], sent: _Occurrences) -> Finding:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"Invalid history: {single_line(problems[0], 200)}{more}"
    if sent.count > 1:
        message += f", in {sent.count} calls"
    spans = sent.spans[:EVIDENCE_MAX]
    cause = sent.refused or sent.first
    if sent.refused is not None:
        message += f"; the provider rejected it: {single_line(sent.refusal or '', 160)}"
        spans = list(dict.fromkeys([sent.refused.id, *spans]))[:EVIDENCE_MAX]
    else:
        message += "; the provider accepted it"
    severity: Severity = "error" if sent.refused else "warning"
    return make_finding(
        evidence,
        "invalid-history",
        kind="history/invalid",
        message=message + ".",
        severity=severity,
        confidence=0.95 if sent.refused else 0.75,
        cause=cause.id,
        evidence=spans,
        command=f"vestige body {cause.short_id}",
    )


def _refused_finding(evidence: Evidence, span: SpanInfo, refusal: str) -> Finding:
    """Return a finding for a rejection whose cause is not visible in the request."""
    return make_finding(
        evidence,
        "invalid-history",
        kind="history/refused",
        message=f"The provider rejected the history: {single_line(refusal, 240)}",
        confidence=0.8,
        basis="hypothesis",
        cause=span.id,
        evidence=[span.id],
    )


def find_refusal(evidence: Evidence, span: SpanInfo) -> str | None:
    """Return the provider's error, if it rejected this request because of its content."""
    code = span.attributes.get("status_code")
    if type(code) is int:
        if not 400 <= code < 500 or code in UNRELATED_STATUS_CODES:
            return None
    elif span.status in ("timeout", "cancelled", "interrupted") or "url" in span.attributes:
        return None  # an HTTP call without a status has no response
    response = evidence.response(span)
    if response is not None and response.error:
        error = response.error
    elif span.status != "error" and type(code) is not int:
        return None
    else:
        message = span.attributes.get("error.message")
        error = str(message) if message else evidence.output(span) or ""
        error = error or f"status {code or span.status}"
    # Overload, limits, quota, keys and policy do not depend on the history.
    return None if classify_refusal(code, error) is not None else error


# --- changes by a transform ---------------------------------------------------------------------


@check(
    "history-mutation",
    title="Conversation changed before sending",
    looks_at="the body of a step or prompt span (before), and the request of its llm span (after)",
    severity="warning",
    confidence=0.85,
    false_positives="a trimmer that is meant to drop or shorten messages; one with a repair or "
    "compaction span is not reported",
)
def history_mutation(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per kind of change and step name: a faulty transform repeats its change."""
    seen: dict[tuple[str, str], list[tuple[Change, SpanInfo, SpanInfo]]] = {}
    done: set[str] = set()
    for call in sent_calls(evidence):
        before_span = _find_before(evidence, call)
        if before_span is None or before_span.id in done:
            continue  # a second call of the same step has another prompt
        before = _read_before(evidence, before_span)
        after = evidence.request(call)
        if before is None or after is None:
            continue
        done.add(before_span.id)
        changes = find_changes(before, after)
        if changes and _is_announced(evidence, before_span, call):
            continue
        for change in changes:
            key = (change.kind, before_span.name)
            seen.setdefault(key, []).append((change, before_span, call))
    for (kind, _), cases in islice(seen.items(), FINDINGS_MAX):
        change, before_span, call = cases[0]
        count = len({case[2].id for case in cases})
        times = f" ({count} times)" if count > 1 else ""
        yield make_finding(
            evidence,
            "history-mutation",
            kind=kind,
            message=f"{change.message}{times}.",
            confidence=change.confidence,
            cause=_find_transform(evidence, before_span, call).id,
            evidence=list(
                dict.fromkeys([call.id, before_span.id, *(case[2].id for case in cases[1:4])])
            ),
            command=f"vestige diff {before_span.short_id} {call.short_id}",
        )


def _find_before(evidence: Evidence, call: SpanInfo) -> SpanInfo | None:
    """Return the span with the intended prompt: a sibling `prompt`, or a step above the call."""
    prompt = evidence.last_before("prompt", call)
    if prompt is not None and (prompt.input or prompt.output):
        return prompt
    above = evidence.spans.get(call.parent_id or "")
    for _ in range(CLIMB_MAX):
        if above is None:
            return None
        if above.type in ("step", "prompt", "llm") and above.input is not None:
            return above
        above = evidence.spans.get(above.parent_id or "")
    return None


def _read_before(evidence: Evidence, span: SpanInfo) -> Request | None:
    """Parse the intended prompt, which is a request or a list of messages."""
    from vestige.providers.parsing import parse_request

    text = evidence.input(span) or evidence.output(span)
    if text is None:
        return None
    begin = text.lstrip()[:1]
    if begin == "[":
        return parse_request(f'{{"messages":{text}}}', None)
    return parse_request(text, None) if begin == "{" else None


def _is_announced(evidence: Evidence, before: SpanInfo, call: SpanInfo) -> bool:
    """Return whether a repair or compaction span between the two explains the change."""
    announcements = evidence.once(_index_announcements)
    begin, end = evidence.places[before.id], evidence.places[call.id]
    return any(
        bisect_left(indexes, begin) < bisect_left(indexes, end)
        for parent in (before.id, call.parent_id)
        if (indexes := announcements.get(parent))
    )


def _index_announcements(evidence: Evidence) -> dict[str | None, list[int]]:
    """Return the indexes of repair and compaction spans, by parent."""
    indexes: dict[str | None, list[int]] = {}
    for index, span in enumerate(evidence.run.spans):
        if span.type == "repair" or ANNOUNCEMENT.search(span.name):
            indexes.setdefault(span.parent_id, []).append(index)
    return indexes


def _find_transform(evidence: Evidence, before: SpanInfo, call: SpanInfo) -> SpanInfo:
    """Return the span of the transform itself, or the span with the prompt if it has none."""
    for span in reversed(evidence.children.get(call.parent_id, [])):
        if (
            _precedes(span, call)
            and _precedes(before, span)
            and span.type not in ("llm", "tool", "prompt", "prompt.assembly", "http")
        ):
            return span
    return before


def _precedes(first: SpanInfo, second: SpanInfo) -> bool:
    if first.writer == second.writer and first.seq is not None and second.seq is not None:
        return first.seq < second.seq
    return first.started_ns < second.started_ns
