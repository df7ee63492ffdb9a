"""Too slow, too much, too full, or suddenly empty: durations, tokens, and the context window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise, takewhile
from statistics import median

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.requested_calls import model_calls
from vestige.query.evidence import Evidence
from vestige.query.failures.stall_report import find_last_stall, find_stall_location, is_stall
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

STALL_MIN_NS = 30 * 10**9
"""Shorter than this, nobody waits long enough to ask."""

STALL_RATIO = 10
STALL_OTHERS_MIN = 2
"""Others of the same name, to know what is usual."""

TOKENS_MAX = 1_000_000
COST_MAX_USD = 10.0
"""One run above this should be meant."""

GROWTH_CALLS_MIN = 8
GROWTH_RATIO = 10
GROWTH_TOKENS_MIN = 50_000
"""Every history grows; one that grew tenfold, without a break, to this size is not looked after."""

PRESSURE = 0.8
"""Of the window: from here on models forget, and the next large result will not fit."""

LOSS = 0.5
LOSS_TOKENS_MIN = 2_000
LOSS_BYTES_MIN = 8_000
"""Below this, half of it is a message or two."""

WINDOWS = (
    ("gpt-4.1", 1_047_576), ("gpt-4o", 128_000), ("gpt-4-turbo", 128_000), ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192), ("gpt-3.5", 16_385), ("gpt-5", 400_000), ("o1", 200_000), ("o3", 200_000),
    ("o4", 200_000), ("claude", 200_000), ("gemini-1.5-pro", 2_097_152), ("gemini", 1_048_576),
    ("llama-3", 128_000), ("mistral-large", 128_000), ("deepseek", 128_000), ("qwen", 128_000),
)  # fmt: skip
"""Tokens, by how a model's name begins; the attribute `context_window` of a span wins."""

_COMPACTION = re.compile(
    r"compact|summar|trim|prun|truncat|repair|condens|forget|reset|clear", re.I
)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|context window"
    r"|input token count .{0,80} exceeds|too many tokens|request_too_large",
    re.IGNORECASE,
)


# --- time ---------------------------------------------------------------------------------------


@check(
    "stalled-step",
    title="A step that took far longer than its like",
    looks_at="durations of spans of the same type and name: over 30 s, and over 10 times their median",
    severity="warning",
    confidence=0.7,
    false_positives="work of very different sizes under one name; waiting for a person",
    version=2,
)
def stalled_step(evidence: Evidence) -> Iterator[Finding]:
    by_name: dict[tuple[str, str], list[SpanInfo]] = {}
    for span in evidence.run.spans:
        if span.type not in ("run", "process"):
            by_name.setdefault((span.type, span.name), []).append(span)
    stalled: dict[str, tuple[SpanInfo, float]] = {}
    for spans in by_name.values():
        slow = [span for span in spans if _duration(evidence, span) > STALL_MIN_NS]
        if not slow or len(spans) <= STALL_OTHERS_MIN:
            continue
        usual = median(_duration(evidence, span) for span in spans)
        for span in slow:
            if _duration(evidence, span) > STALL_RATIO * usual:
                stalled[span.id] = (span, usual)
    outer: set[str] = set()
    for span_id in stalled:
        # Above one that is known to stand outside, all are.
        outer.update(takewhile(lambda parent: parent not in outer, _ancestors(evidence, span_id)))
    inner = [each for span_id, each in stalled.items() if span_id not in outer]
    inner.sort(key=lambda each: -_duration(evidence, each[0]))
    for span, usual in inner[:FINDINGS_MAX]:
        took = _duration(evidence, span)
        place = find_stall_location(evidence, span)
        yield make_finding(
            evidence,
            "stalled-step",
            cause=span.id,
            evidence=[span.id, *(s.id for s in by_name[span.type, span.name] if s is not span)][:4],
            message=f"{formatting.single_line(span.type, 20)} {formatting.single_line(span.name, 60)} took "
            f"{formatting.duration(took)}; usual here is {formatting.duration(int(usual))} "
            f"({took / max(usual, 1):.0f} times that){f'; stood at {place}' if place else ''}.",
        )


@check(
    "standstill",
    title="A program that still runs, and has said nothing for long",
    looks_at="where the process wrote down that it stands, and whether anything came after it",
    severity="warning",
    confidence=0.6,
    false_positives="waiting for a person, for a request, or for a model that takes its time",
)
def standstill(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome != "running":
        return  # how it ended tells it, or where it took so long
    for writer in {log.writer: None for log in evidence.run.logs if is_stall(log)}:
        last = find_last_stall(evidence.run, writer)
        if last is not None:
            yield make_finding(
                evidence,
                "standstill",
                cause=last.span_id if last.span_id in evidence.spans else None,
                message=f"{formatting.single_line(last.message, 240)}.",
                command=f"vestige stacks {evidence.run.info.short_id}",
            )


def _duration(evidence: Evidence, span: SpanInfo) -> int:
    """Of an open span, the time until the run's last sign of life."""
    if span.duration_ns is not None:
        return span.duration_ns
    return max(0, evidence.run.info.last_ns - span.started_ns)


def _ancestors(evidence: Evidence, span_id: str) -> Iterator[str]:
    seen = {span_id}
    span = evidence.spans[span_id]
    while span.parent_id is not None and span.parent_id not in seen:
        seen.add(span.parent_id)
        yield span.parent_id
        parent = evidence.spans.get(span.parent_id)
        if parent is None:
            return
        span = parent


# --- tokens and money ---------------------------------------------------------------------------


@check(
    "runaway-cost",
    title="A run that uses far more than one should",
    looks_at="tokens and cost of the whole run, and input tokens that grow with every call",
    severity="warning",
    confidence=0.7,
    false_positives="a long task that is meant to be one",
    version=2,
)
def runaway_cost(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.model_calls
    if not calls:
        return
    largest = max(calls, key=lambda span: _tokens_in(span) or 0)
    total = sum((_tokens_in(span) or 0) + _count(span, "output_tokens") for span in calls)
    if total > TOKENS_MAX:
        yield make_finding(
            evidence,
            "runaway-cost",
            kind="runaway/tokens",
            cause=largest.id,
            evidence=[largest.id],
            message=f"{formatting.number(total)} tokens in {formatting.pluralize(len(calls), 'model call')} "
            f"(bound {formatting.number(TOKENS_MAX)}); the largest request had "
            f"{formatting.number(_tokens_in(largest) or 0)}.",
        )
    cost = sum(_number(span, "cost_usd") for span in calls)
    if cost > COST_MAX_USD:
        dearest = max(calls, key=lambda span: _number(span, "cost_usd"))
        yield make_finding(
            evidence,
            "runaway-cost",
            kind="runaway/cost",
            cause=dearest.id,
            evidence=[dearest.id],
            message=f"${cost:.2f} in {formatting.pluralize(len(calls), 'model call')} "
            f"(bound ${COST_MAX_USD:.0f}); the dearest cost ${_number(dearest, 'cost_usd'):.2f}.",
        )
    for own in _by_agent(calls):
        yield from _growing(evidence, own)


def _growing(evidence: Evidence, calls: list[SpanInfo]) -> Iterator[Finding]:
    known = [(span, tokens) for span in calls if (tokens := _tokens_in(span)) is not None]
    begin = 0
    for place in range(1, len(known) + 1):
        if place < len(known) and known[place][1] > known[place - 1][1]:
            continue
        (first, low), (last, high) = known[begin], known[place - 1]
        count = place - begin
        begin = place
        if count < GROWTH_CALLS_MIN or high < GROWTH_TOKENS_MIN or high < GROWTH_RATIO * low:
            continue
        yield make_finding(
            evidence,
            "runaway-cost",
            kind="runaway/growth",
            confidence=0.6,
            cause=max(
                zip(known[place - count + 1 : place], known[place - count :], strict=False),
                key=lambda pair: pair[0][1] - pair[1][1],
            )[0][0].id,
            evidence=[first.id, last.id],
            message=f"input grew in each of {count} calls in a row, from {formatting.number(low)} to "
            f"{formatting.number(high)} tokens; the cause named here added most.",
        )
        return


# --- the window -----------------------------------------------------------------------------------


@check(
    "context-pressure",
    title="The context window is nearly full",
    looks_at="input tokens against the model's window, and providers that say it is full",
    severity="warning",
    confidence=0.6,
    false_positives="a model whose window is larger than the table says",
    version=2,
)
def context_pressure(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.model_calls
    refused = [span for span in calls if span.status == "error" and was_too_long(evidence, span)]
    if refused:
        yield make_finding(
            evidence,
            "context-pressure",
            kind="context/exceeded",
            severity="error",
            confidence=0.95,
            cause=refused[0].id,
            evidence=[span.id for span in refused[:EVIDENCE_MAX]],
            message=f"the provider refused {formatting.pluralize(len(refused), 'request')} as too long: "
            f"{formatting.single_line(str(refused[0].attributes.get('error.message') or ''), 160)}",
        )
    full = [
        (tokens / window, tokens, window, span)
        for span in calls
        if (tokens := _tokens_in(span)) and (window := _window(span)) and tokens > PRESSURE * window
    ]
    # What was answered did fit: the window is another than the one we know.
    larger = {_model(span) for share, *_, span in full if share > 1 and span.status == "ok"}
    full = [each for each in full if _model(each[3]) not in larger]
    if full:
        share, tokens, window, span = max(full, key=lambda each: each[0])
        first = full[0][3]
        yield make_finding(
            evidence,
            "context-pressure",
            kind="context/pressure",
            basis="hypothesis",
            cause=first.id,
            evidence=[first.id, span.id],
            message=f"{formatting.single_line(str(span.attributes.get('model')), 40)}: {tokens} of {window} "
            f"tokens of the window ({share:.0%}) in {span.short_id}; "
            f"{formatting.pluralize(len(full), 'call')} above {PRESSURE:.0%}.",
        )


def was_too_long(evidence: Evidence, span: SpanInfo) -> bool:
    said = str(span.attributes.get("error.message") or "") or (evidence.output(span) or "")[:4000]
    return _TOO_LONG.search(said) is not None


def _model(span: SpanInfo) -> str:
    return str(span.attributes.get("model") or "").rpartition("/")[2].lower()


def _window(span: SpanInfo) -> int | None:
    own = span.attributes.get("context_window")
    if isinstance(own, int) and own > 0:
        return own
    model = _model(span)
    return next((window for name, window in WINDOWS if model.startswith(name)), None)


@check(
    "history-loss",
    title="Half of the history is gone, and nobody says why",
    looks_at="input of consecutive llm calls of one conversation; repair and compaction spans between them",
    severity="warning",
    confidence=0.7,
    false_positives="a second, shorter conversation that begins with the same words",
    version=2,
)
def history_loss(evidence: Evidence) -> Iterator[Finding]:
    opening = {model.span.id: model.opening for model in model_calls(evidence)}
    order = {span.id: place for place, span in enumerate(evidence.run.spans)}
    explained = [
        place
        for place, span in enumerate(evidence.run.spans)
        if span.type in ("repair", "compaction")
        or (span.type != "llm" and _COMPACTION.search(f"{span.type} {span.name}"))
        or (span.type == "llm" and _COMPACTION.search(span.name))
    ]
    found = 0
    for own in _by_agent(evidence.model_calls):
        for before, after in pairwise(own):
            if bisect_left(explained, order[before.id]) < bisect_right(explained, order[after.id]):
                continue
            lost = _lost(before, after)
            if lost is None or found >= FINDINGS_MAX:
                continue
            one, other = opening.get(before.id, ""), opening.get(after.id, "")
            if one and other and one != other:
                continue  # another conversation
            found += 1
            same = bool(one and other)
            yield make_finding(
                evidence,
                "history-loss",
                severity="warning" if same else "hint",
                confidence=0.7 if same else 0.4,
                basis="measured" if same else "hypothesis",
                cause=after.id,
                evidence=[after.id, before.id],
                message=f"the request of {after.short_id} is {lost} after {before.short_id}, without "
                "a repair or compaction between them.",
                command=f"vestige diff {before.short_id} {after.short_id}",
            )


def _lost(before: SpanInfo, after: SpanInfo) -> str | None:
    """In words, by how much the input shrank; None if it did not."""
    was, now = _tokens_in(before), _tokens_in(after)
    if was is not None and now is not None:
        if was < LOSS_TOKENS_MIN or now >= LOSS * was or now == 0:
            return None
        return f"{now} tokens, and {was} before: {1 - now / was:.0%} less"
    if before.input is None or after.input is None:
        return None
    size, size_now = before.input.size_bytes, after.input.size_bytes
    if size < LOSS_BYTES_MIN or size_now >= LOSS * size:
        return None
    return f"{formatting.size(size_now)}, and {formatting.size(size)} before: {1 - size_now / size:.0%} less"


# --- small things -----------------------------------------------------------------------------------


def _by_agent(calls: list[SpanInfo]) -> list[list[SpanInfo]]:
    """Calls that may be one conversation: of one component, model and name."""
    found: dict[tuple[object, ...], list[SpanInfo]] = {}
    for span in calls:
        key = (span.component, span.name, span.attributes.get("model"))
        found.setdefault(key, []).append(span)
    return list(found.values())


def _tokens_in(span: SpanInfo) -> int | None:
    """The whole prompt. The wire's count is of all input; who writes down what Anthropic says
    itself counts what the cache served apart, and then it may be more than the rest."""
    value = span.attributes.get("input_tokens")
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    model, provider = span.attributes.get("model"), span.attributes.get("provider")
    cached = _count(span, "cache_read_tokens") + _count(span, "cache_write_tokens")
    apart = provider == "anthropic" or "claude" in str(model or "")
    return value + cached if apart and cached > value else value


def _count(span: SpanInfo, name: str) -> int:
    value = span.attributes.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _number(span: SpanInfo, name: str) -> float:
    value = span.attributes.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
