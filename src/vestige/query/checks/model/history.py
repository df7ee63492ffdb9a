"""History: requests that a provider refuses, and what a transform did to a conversation.

A transform (a provider adapter, a trimmer, a middleware) stands between the prompt that a step
means to send and the bytes that leave. The step's or prompt's body is BEFORE, the body of the
model call in it is AFTER; query/checks/model/history_mutation.py compares them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from vestige.providers.models import Request
from vestige.query.checks import check, make_finding
from vestige.query.checks.model.history_mutation import Change, find_changes
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

NOT_ABOUT_THE_BODY = frozenset({401, 403, 404, 407, 408, 409, 425, 429})
"""Refusals that a better history would not have helped."""

FINDINGS_MAX = 20
"""Of changes by a transform: steps may all have names of their own."""

EVIDENCE_MAX = 6
"""Spans that one finding points at."""

CLIMB_MAX = 3
"""How far above a model call its prompt may stand."""

_HISTORY_WORDS = re.compile(
    r"tool_use|tool_result|tool_calls?\b|tool_call_id|function ?(?:call|response)|MissingToolResult"
    r"|roles? must alternate|alternat\w+ between|first message must|must be followed by"
    r"|did not have response messages|No tool (?:output|call) found|unexpected role|invalid role"
    r"|non-?empty content|content must not be empty|final assistant content",
    re.IGNORECASE,
)

_CHANGES = re.compile(r"compact|summar|trim|repair", re.IGNORECASE)


# --- what a provider refuses ------------------------------------------------------------------


@check(
    "invalid-history",
    title="A request whose history breaks the provider's rules",
    looks_at="request bodies of llm spans, by the rules of their provider; the answer, if it refused",
    severity="error",
    confidence=0.95,
    false_positives="a lenient server behind a compatible API may take what the original refuses: "
    "without a refusal it is a warning",
    version=3,
)
def invalid_history(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each set of problems that first appears together."""
    found: dict[str, _Sent] = {}
    refusals: set[str] = set()
    for span in evidence.model_calls:
        request = evidence.request(span)
        problems = list(request.problems) if request is not None else []
        refusal = find_refusal(evidence, span)
        if not problems and refusal and refusal not in refusals and _HISTORY_WORDS.search(refusal):
            refusals.add(refusal)
            yield _refused_for_it(evidence, span, refusal)
        for problem in problems:
            found.setdefault(problem, _Sent(span)).add(span, refusal)
    together: dict[str, list[str]] = {}
    for problem, sent in found.items():
        together.setdefault(sent.first.id, []).append(problem)
    for told in together.values():
        yield _invalid(evidence, told, found[told[0]])


@dataclass(slots=True)
class _Sent:
    """Where a problem was sent, and the first refusal that it met."""

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


def _invalid(evidence: Evidence, problems: list[str], sent: _Sent) -> Finding:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"The request's history is invalid: {single_line(problems[0], 200)}{more}"
    if sent.count > 1:
        message += f", in {sent.count} calls"
    spans = sent.spans[:EVIDENCE_MAX]
    cause = sent.refused or sent.first
    if sent.refused is not None:
        message += f"; the provider refused it: {single_line(sent.refusal or '', 160)}"
        spans = list(dict.fromkeys([sent.refused.id, *spans]))[:EVIDENCE_MAX]
    else:
        message += "; the provider did not refuse it"
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


def _refused_for_it(evidence: Evidence, span: SpanInfo, refusal: str) -> Finding:
    """The provider says so itself, though we see nothing wrong, or have no body."""
    return make_finding(
        evidence,
        "invalid-history",
        kind="history/refused",
        message=f"The provider refused the request's history: {single_line(refusal, 240)}",
        confidence=0.8,
        basis="hypothesis",
        cause=span.id,
        evidence=[span.id],
    )


def find_refusal(evidence: Evidence, span: SpanInfo) -> str | None:
    """The provider's words, if it refused this request for what it holds."""
    code = span.attributes.get("status_code")
    if type(code) is int:
        if not 400 <= code < 500 or code in NOT_ABOUT_THE_BODY:
            return None
    elif span.status in ("timeout", "cancelled", "interrupted") or "url" in span.attributes:
        return None  # seen at the wire, and without a status: it never got an answer
    response = evidence.response(span)
    if response is not None and response.error:
        return response.error
    if span.status != "error" and type(code) is not int:
        return None
    said = span.attributes.get("error.message")
    return str(said) if said else (evidence.output(span) or f"status {code or span.status}")


# --- what a transform did -----------------------------------------------------------------------


@check(
    "history-mutation",
    title="A transform changed the conversation on its way out",
    looks_at="the body of a step or prompt span (before) against the request of the llm span in it (after)",
    severity="warning",
    confidence=0.85,
    false_positives="a trimmer that means to drop or shorten; one that says so with a repair or "
    "compaction span is left alone",
)
def history_mutation(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each kind of change and each kind of step: a faulty transform acts every time."""
    seen: dict[tuple[str, str], list[tuple[Change, SpanInfo, SpanInfo]]] = {}
    done: set[str] = set()
    for call in evidence.model_calls:
        before_span = _find_before(evidence, call)
        if before_span is None or before_span.id in done:
            continue  # a second call in the same step has other things to say
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
        times = f" ({count} times in this run)" if count > 1 else ""
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
    """The span that holds what was meant: a `prompt` beside the call, or a step around it."""
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
    """A request, or messages alone: what is not yet a provider's is often a bare list."""
    from vestige.providers.parsing import parse_request

    text = evidence.input(span) or evidence.output(span)
    if text is None:
        return None
    begin = text.lstrip()[:1]
    if begin == "[":
        return parse_request(f'{{"messages":{text}}}', None)
    return parse_request(text, None) if begin == "{" else None


def _is_announced(evidence: Evidence, before: SpanInfo, call: SpanInfo) -> bool:
    """A repair or a compaction stands between the two: a change that says what it is."""
    announcing = evidence.once(_find_announcing)
    begin, end = evidence.places[before.id], evidence.places[call.id]
    return any(
        bisect_left(places, begin) < bisect_left(places, end)
        for parent in (before.id, call.parent_id)
        if (places := announcing.get(parent))
    )


def _find_announcing(evidence: Evidence) -> dict[str | None, list[int]]:
    """By parent: where the spans stand that say that they change a conversation."""
    found: dict[str | None, list[int]] = {}
    for place, span in enumerate(evidence.run.spans):
        if span.type == "repair" or _CHANGES.search(span.name):
            found.setdefault(span.parent_id, []).append(place)
    return found


def _find_transform(evidence: Evidence, before: SpanInfo, call: SpanInfo) -> SpanInfo:
    """The span of the transform itself, if it has one; else the one that held the prompt."""
    for span in reversed(evidence.children.get(call.parent_id, [])):
        if (
            _stands_before(span, call)
            and _stands_before(before, span)
            and span.type not in ("llm", "tool", "prompt", "prompt.assembly", "http")
        ):
            return span
    return before


def _stands_before(first: SpanInfo, second: SpanInfo) -> bool:
    if first.writer == second.writer and first.seq is not None and second.seq is not None:
        return first.seq < second.seq
    return first.started_ns < second.started_ns
