"""Check responses (truncated, empty, filtered) and tool results (too large, duplicated)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from vestige.limits import KIB
from vestige.providers.chat_types import Response
from vestige.providers.stream_timing import has_ended
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

LENGTH_REASONS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
FILTER_REASONS = frozenset(
    {
        "content_filter",
        "content_filtered",
        "safety",
        "refusal",
        "recitation",
        "blocklist",
        "prohibited_content",
        "guardrail_intervened",
        "spii",
    }
)

OVERSIZED_MIN = 50_000
"""Bytes of a result that is reported, if it is also a large share of its request."""
OVERSIZED_SHARE = 0.25
"""Share of the request."""

REPEATED_MIN = 4 * KIB
"""Characters of a text that is not repeated by chance."""

EVIDENCE_MAX = 6

_OTHER_CONTENT = re.compile(
    r'"type"\s*:\s*"(?:\w+_call|mcp_\w+|server_tool_use|\w+_tool_result)"'
    r'|"(?:inline_?data|executable_?code|audio)"\s*:\s*\{|"images"\s*:\s*\[\s*\{',
    re.IGNORECASE,
)
"""Content that is neither text nor a tool call: the provider's own tools, images, audio."""


# --- responses ----------------------------------------------------------------------------------


@check(
    "output-cut",
    title="Response truncated",
    looks_at="finish_reason of llm spans (length, max_tokens), the arguments of the last tool "
    "call, and streams that stop without a finish reason and without an end event",
    severity="error",
    confidence=0.95,
    false_positives="an intended limit of one token, as in a probe (calls with `warm` are not "
    "reported); a server whose streams have no end event",
    version=2,
)
def output_cut(evidence: Evidence) -> Iterator[Finding]:
    """Report truncated responses; a truncated tool call is an error, since it is incomplete."""
    for case in _group(_truncated_responses(evidence)):
        yield case.finding(evidence, "output-cut")


def _truncated_responses(evidence: Evidence) -> Iterator[_Case]:
    for span in evidence.model_calls:
        finish = _finish_reason(evidence, span)
        if finish is None and _is_incomplete_stream(evidence, span):
            yield _Case(
                span,
                "output/unfinished",
                "warning",
                0.7,
                "The stream stopped without a finish reason and without an end event: "
                "the response may be truncated",
            )
        if finish not in LENGTH_REASONS or span.attributes.get("warm"):
            continue
        response = evidence.response(span)
        request = evidence.request(span)
        tokens = span.attributes.get("output_tokens")
        if tokens is None and response is not None:
            tokens = response.usage.output_tokens
        after = f" after {tokens:,} tokens" if isinstance(tokens, int) else ""
        limit = request.max_output_tokens if request is not None else None
        allowed = f" (max {limit:,})" if limit else ""
        broken = _find_broken_call(response)
        if broken:
            yield _Case(
                span,
                "output/cut-tool-call",
                "error",
                0.95,
                f"Response truncated{after}{allowed} inside the arguments of tool call {broken}",
            )
        else:
            yield _Case(
                span,
                "output/cut",
                "warning",
                0.95,
                f"Response truncated at its length limit{after}{allowed}",
            )


def _is_incomplete_stream(evidence: Evidence, span: SpanInfo) -> bool:
    """Return whether a stream has no end event. SDKs return what arrived, without an error."""
    if span.status != "ok" or span.attributes.get("stream") is not True or span.output is None:
        return False
    response = evidence.response(span)
    if response is None or not (response.text or response.calls) or span.output.cut:
        return False
    raw = evidence.raw(span.output)
    return raw is not None and len(raw) == span.output.size_bytes and not has_ended(raw)


def _find_broken_call(response: Response | None) -> str | None:
    for call in reversed(response.calls if response is not None else []):
        try:
            msgspec.json.decode(call.arguments or "{}")
        except (msgspec.DecodeError, ValueError):
            return single_line(call.name or call.id or "?", 60)
    return None


@check(
    "empty-response",
    title="Empty model response",
    looks_at="output bodies of successful llm spans without text and tool calls",
    severity="warning",
    confidence=0.85,
    false_positives="an agent that ends with an empty turn",
    version=2,
)
def empty_response(evidence: Evidence) -> Iterator[Finding]:
    for case in _group(_empty_responses(evidence)):
        yield case.finding(evidence, "empty-response")


def _empty_responses(evidence: Evidence) -> Iterator[_Case]:
    for span in evidence.model_calls:
        if span.status != "ok" or span.output is None or span.attributes.get("warm"):
            continue
        finish = _finish_reason(evidence, span)
        if finish in LENGTH_REASONS or finish in FILTER_REASONS:
            continue  # other checks report these
        response = evidence.response(span)
        if response is None:
            text = evidence.output(span)
            empty = text is not None and text.strip() in ("", '""', "null", "{}", "[]")
        else:
            empty = not (response.text.strip() or response.calls or response.error)
            empty = empty and not _OTHER_CONTENT.search(evidence.output(span) or "")
        if empty:
            reason = f" (finish reason {finish})" if finish else ""
            message = f"The model returned no text and no tool call{reason}"
            yield _Case(span, "output/empty", "warning", 0.85, message)


@check(
    "content-filter",
    title="Content filter",
    looks_at="finish_reason of llm spans: content_filter, safety, refusal",
    severity="warning",
    confidence=0.95,
    false_positives="none known: the provider reports it",
)
def content_filter(evidence: Evidence) -> Iterator[Finding]:
    for case in _group(_filtered_responses(evidence)):
        yield case.finding(evidence, "content-filter")


def _filtered_responses(evidence: Evidence) -> Iterator[_Case]:
    for span in evidence.model_calls:
        finish = _finish_reason(evidence, span)
        if finish in FILTER_REASONS:
            message = f"The provider's content filter stopped the response (finish reason {finish})"
            yield _Case(span, "output/content-filter", "warning", 0.95, message)


def _finish_reason(evidence: Evidence, span: SpanInfo) -> str | None:
    """Return the normalized finish reason, from the attributes or else from the body."""
    reason = span.attributes.get("finish_reason")
    if not reason and span.output is not None:
        response = evidence.response(span)
        reason = response.finish_reason if response is not None else None
    return single_line(str(reason), 40).lower().replace("-", "_") if reason else None


# --- results in the prompt ------------------------------------------------------------------------


@check(
    "oversized-result",
    title="Oversized tool result",
    looks_at="tool results in request bodies: more than a quarter of the request and 50 kB",
    severity="warning",
    confidence=0.9,
    false_positives="a task about one long document",
)
def oversized_result(evidence: Evidence) -> Iterator[Finding]:
    """Report each result once, at the call that first sent it. Its tool span is the cause."""
    times: dict[object, int] = {}
    found: list[tuple[object, SpanInfo, int, int, str | None]] = []
    for span in evidence.model_calls:
        size = span.input.size_bytes if span.input is not None else 0
        request = evidence.request(span) if size > OVERSIZED_MIN else None
        if request is None:
            continue
        for message in request.messages:
            for result in message.results:
                if len(result.text) * 4 < OVERSIZED_MIN:
                    continue
                length = len(result.text.encode(errors="replace"))
                if length <= max(OVERSIZED_MIN, OVERSIZED_SHARE * size):
                    continue
                key: object = result.call_id or hash(result.text)
                times[key] = times.get(key, 0) + 1
                if times[key] == 1:
                    found.append((key, span, length, size, result.call_id))
    for key, span, length, size, call_id in found:
        tool = _find_tool(evidence, call_id)
        source = f" of {single_line(tool.name, 60)}" if tool is not None else ""
        if tool is None and call_id:
            source = f" of call {single_line(call_id, 60)}"
        calls = f", in {times[key]} calls" if times[key] > 1 else ""
        yield make_finding(
            evidence,
            "oversized-result",
            kind="prompt/oversized-result",
            message=f"The tool result{source} is {length:,} bytes, {100 * length // size} % of the "
            f"request{calls}.",
            cause=(tool or span).id,
            evidence=[span.id, *([tool.id] if tool is not None else [])],
            command=f"vestige span {span.short_id}",
        )


@check(
    "repeated-result",
    title="Duplicate content in prompt",
    looks_at="equal tool results and texts of at least 4 KiB in one request body",
    severity="warning",
    confidence=0.75,
    false_positives="an unchanged file that is read again on purpose",
)
def repeated_result(evidence: Evidence) -> Iterator[Finding]:
    """Report each text once, at the first call that sends it twice."""
    reported: set[int] = set()
    for span in evidence.model_calls:
        if span.input is None or span.input.size_bytes < 2 * REPEATED_MIN:
            continue
        request = evidence.request(span)
        if request is None:
            continue
        occurrences: dict[str, list[str | None]] = {}
        for message in request.messages:
            texts = [(result.text, result.call_id) for result in message.results]
            if not texts:
                texts = [(message.text, None)]
            for text, call_id in texts:
                if len(text) >= REPEATED_MIN:
                    occurrences.setdefault(text, []).append(call_id)
        for text, ids in occurrences.items():
            if len(ids) < 2 or hash(text) in reported:
                continue
            reported.add(hash(text))
            tools = [t for t in (_find_tool(evidence, i) for i in dict.fromkeys(ids)) if t]
            names = ", ".join(dict.fromkeys(single_line(tool.name, 60) for tool in tools[:3]))
            yield make_finding(
                evidence,
                "repeated-result",
                kind="prompt/repeated-result",
                message=f"The same {len(text.encode(errors='replace')):,} bytes occur {len(ids)} "
                f"times in one request{f' (results of {names})' if names else ''}.",
                cause=span.id,
                evidence=[span.id, *(tool.id for tool in tools[: EVIDENCE_MAX - 1])],
            )


def _find_tool(evidence: Evidence, call_id: str | None) -> SpanInfo | None:
    return evidence.once(_index_tools).get(call_id) if call_id else None


def _index_tools(evidence: Evidence) -> dict[object, SpanInfo]:
    """Return the first tool span of each call id."""
    tools: dict[object, SpanInfo] = {}
    for span in evidence.of_type("tool"):
        tools.setdefault(span.attributes.get("tool_call_id"), span)
    return tools


# --- shared ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Case:
    """A response with a problem, and the later ones of the same kind."""

    span: SpanInfo
    kind: str
    severity: Severity
    confidence: float
    message: str
    others: list[str] = field(default_factory=list)

    def finding(self, evidence: Evidence, name: str) -> Finding:
        count = f" ({len(self.others) + 1} calls)" if self.others else ""
        return make_finding(
            evidence,
            name,
            kind=self.kind,
            severity=self.severity,
            confidence=self.confidence,
            message=f"{self.message}{count}.",
            cause=self.span.id,
            evidence=[self.span.id, *self.others[: EVIDENCE_MAX - 1]],
        )


def _group(cases: Iterator[_Case]) -> list[_Case]:
    """Return the first case of each kind and component, with the others added to it."""
    firsts: dict[tuple[str, str], _Case] = {}
    for case in cases:
        first = firsts.setdefault((case.kind, case.span.component), case)
        if first is not case:
            first.others.append(case.span.id)
    return list(firsts.values())
