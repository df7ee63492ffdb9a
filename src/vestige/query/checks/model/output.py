"""Output: answers that are cut, empty or filtered, and results that fill or repeat in a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from vestige.limits import KIB
from vestige.providers.models import Response
from vestige.providers.stream_timing import has_ended
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

LENGTH_WORDS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
FILTER_WORDS = frozenset(
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
"""Bytes of one result that is worth a word, whatever the rest is."""
OVERSIZED_SHARE = 0.25
"""Of its request."""

REPEATED_MIN = 4 * KIB
"""A block of this size, twice in one request, is no turn of phrase."""

EVIDENCE_MAX = 6

_OTHER_CONTENT = re.compile(
    r'"type"\s*:\s*"(?:\w+_call|mcp_\w+|server_tool_use|\w+_tool_result)"'
    r'|"(?:inline_?data|executable_?code|audio)"\s*:\s*\{|"images"\s*:\s*\[\s*\{',
    re.IGNORECASE,
)
"""Answers that are neither text nor a call of the program's tools: the provider's own tools, pictures, sound."""


# --- answers ------------------------------------------------------------------------------------


@check(
    "output-cut",
    title="The answer was cut at its length limit",
    looks_at="finish_reason of llm spans: length, max_tokens; the arguments of its last tool call; streams "
    "that stop without a finish reason and without the event that ends one",
    severity="error",
    confidence=0.95,
    false_positives="a limit of one token that is meant, as in a warming or a probing call (`warm` is left alone); "
    "a server whose streams never say that they end",
    version=2,
)
def output_cut(evidence: Evidence) -> Iterator[Finding]:
    """A cut tool call is an error: what it asks for is not what was meant."""
    for folded in _fold(evidence, _cut_calls(evidence)):
        yield folded.finding(evidence, "output-cut")


def _cut_calls(evidence: Evidence) -> Iterator[_Case]:
    for span in evidence.model_calls:
        finish = _finish(evidence, span)
        if finish is None and _stops_short(evidence, span):
            yield _Case(
                span,
                "output/unfinished",
                "warning",
                0.7,
                "The stream stopped without a finish reason and without its last event: the answer may be cut",
            )
        if finish not in LENGTH_WORDS or span.attributes.get("warm"):
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
                f"The answer was cut{after}{allowed} inside the arguments of tool call {broken}",
            )
        else:
            yield _Case(
                span,
                "output/cut",
                "warning",
                0.95,
                f"The answer was cut by its length limit{after}{allowed}",
            )


def _stops_short(evidence: Evidence, span: SpanInfo) -> bool:
    """A connection that is closed too early looks like a good end to SDKs: they give what came."""
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
    title="The model answered nothing",
    looks_at="output bodies of llm spans that ended well: no text, no tool call",
    severity="warning",
    confidence=0.85,
    false_positives="an agent whose end is an empty turn",
    version=2,
)
def empty_response(evidence: Evidence) -> Iterator[Finding]:
    for folded in _fold(evidence, _empty_calls(evidence)):
        yield folded.finding(evidence, "empty-response")


def _empty_calls(evidence: Evidence) -> Iterator[_Case]:
    for span in evidence.model_calls:
        if span.status != "ok" or span.output is None or span.attributes.get("warm"):
            continue
        finish = _finish(evidence, span)
        if finish in LENGTH_WORDS or finish in FILTER_WORDS:
            continue  # told by the others
        response = evidence.response(span)
        if response is None:
            text = evidence.output(span)
            empty = text is not None and text.strip() in ("", '""', "null", "{}", "[]")
        else:
            empty = not (response.text.strip() or response.calls or response.error)
            empty = empty and not _OTHER_CONTENT.search(evidence.output(span) or "")
        if empty:
            why = f" (finish reason {finish})" if finish else ""
            yield _Case(
                span,
                "output/empty",
                "warning",
                0.85,
                f"The model answered with no text and no tool call{why}",
            )


@check(
    "content-filter",
    title="A filter stopped the answer",
    looks_at="finish_reason of llm spans: content_filter, safety, refusal",
    severity="warning",
    confidence=0.95,
    false_positives="none known: it is the provider's own word",
)
def content_filter(evidence: Evidence) -> Iterator[Finding]:
    def cases() -> Iterator[_Case]:
        for span in evidence.model_calls:
            finish = _finish(evidence, span)
            if finish in FILTER_WORDS:
                told = f"The provider's filter stopped the answer (finish reason {finish})"
                yield _Case(span, "output/content-filter", "warning", 0.95, told)

    for folded in _fold(evidence, cases()):
        yield folded.finding(evidence, "content-filter")


def _finish(evidence: Evidence, span: SpanInfo) -> str | None:
    """The finish reason in one spelling: as an attribute, else from the body."""
    said = span.attributes.get("finish_reason")
    if not said and span.output is not None:
        response = evidence.response(span)
        said = response.finish_reason if response is not None else None
    return single_line(str(said), 40).lower().replace("-", "_") if said else None


# --- results in the prompt ------------------------------------------------------------------------


@check(
    "oversized-result",
    title="One tool result fills the prompt",
    looks_at="tool results in request bodies: more than a quarter of the request and 50 kB",
    severity="warning",
    confidence=0.9,
    false_positives="a task that is about one long document",
)
def oversized_result(evidence: Evidence) -> Iterator[Finding]:
    """Each result once, at the call that first sent it; the tool that gave it is the cause."""
    told: set[object] = set()
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
                if key not in told:
                    told.add(key)
                    found.append((key, span, length, size, result.call_id))
    for key, span, length, size, call_id in found:
        tool = _find_tool(evidence, call_id)
        who = f"of {single_line(tool.name, 60)} " if tool is not None else ""
        if tool is None and call_id:
            who = f"of call {single_line(call_id, 60)} "
        again = f", in {times[key]} calls" if times[key] > 1 else ""
        yield make_finding(
            evidence,
            "oversized-result",
            kind="prompt/oversized-result",
            message=f"One tool result {who}is {length:,} bytes, {100 * length // size} % of the "
            f"request{again}.",
            cause=(tool or span).id,
            evidence=[span.id, *([tool.id] if tool is not None else [])],
            command=f"vestige span {span.short_id}",
        )


@check(
    "repeated-result",
    title="The same block stands twice in one prompt",
    looks_at="tool results and texts of 4 KiB and more in one request body, compared whole",
    severity="warning",
    confidence=0.75,
    false_positives="a file that is read again on purpose, and did not change",
)
def repeated_result(evidence: Evidence) -> Iterator[Finding]:
    """Each block once, at the first call that sends it twice."""
    told: set[int] = set()
    for span in evidence.model_calls:
        if span.input is None or span.input.size_bytes < 2 * REPEATED_MIN:
            continue
        request = evidence.request(span)
        if request is None:
            continue
        places: dict[str, list[str | None]] = {}
        for message in request.messages:
            texts = [(result.text, result.call_id) for result in message.results]
            if not texts:
                texts = [(message.text, None)]
            for text, call_id in texts:
                if len(text) >= REPEATED_MIN:
                    places.setdefault(text, []).append(call_id)
        for text, ids in places.items():
            if len(ids) < 2 or hash(text) in told:
                continue
            told.add(hash(text))
            tools = [t for t in (_find_tool(evidence, i) for i in dict.fromkeys(ids)) if t]
            names = ", ".join(dict.fromkeys(single_line(tool.name, 60) for tool in tools[:3]))
            yield make_finding(
                evidence,
                "repeated-result",
                kind="prompt/repeated-result",
                message=f"The same {len(text.encode(errors='replace')):,} bytes stand {len(ids)} times "
                f"in one request{f' (results of {names})' if names else ''}.",
                cause=span.id,
                evidence=[span.id, *(tool.id for tool in tools[: EVIDENCE_MAX - 1])],
            )


def _find_tool(evidence: Evidence, call_id: str | None) -> SpanInfo | None:
    return _tools_by_call(evidence).get(call_id) if call_id else None


def _tools_by_call(evidence: Evidence) -> dict[object, SpanInfo]:
    """Executions by the call that asked for them, made once for an evidence."""
    known: dict[object, SpanInfo] | None = evidence.__dict__.get("_tools_by_call")
    if known is None:
        known = {}
        for span in evidence.of_type("tool"):
            known.setdefault(span.attributes.get("tool_call_id"), span)
        evidence.__dict__["_tools_by_call"] = known
    return known


# --- shared ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Case:
    """One occurrence, before those of a kind are told together."""

    span: SpanInfo
    kind: str
    severity: Severity
    confidence: float
    message: str
    others: list[str] | None = None

    def finding(self, evidence: Evidence, name: str) -> Finding:
        others = self.others or []
        times = f" ({len(others) + 1} calls, this is the first)" if others else ""
        return make_finding(
            evidence,
            name,
            kind=self.kind,
            severity=self.severity,
            confidence=self.confidence,
            message=f"{self.message}{times}.",
            cause=self.span.id,
            evidence=[self.span.id, *others[: EVIDENCE_MAX - 1]],
        )


def _fold(evidence: Evidence, cases: Iterator[_Case]) -> list[_Case]:
    """The first of each kind in each component, with the others behind it."""
    first: dict[tuple[str, str], _Case] = {}
    for case in cases:
        key = (case.kind, case.span.component)
        if key not in first:
            case.others = []
            first[key] = case
        else:
            others = first[key].others
            assert others is not None
            others.append(case.span.id)
    return list(first.values())
