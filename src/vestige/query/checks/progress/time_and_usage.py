"""Check durations, token usage, cost, and the context window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise, takewhile
from statistics import median

from vestige.providers.prices import context_window
from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.requested_calls import model_calls
from vestige.query.checks.sent_requests import sent_calls
from vestige.query.evidence import Evidence
from vestige.query.failures.stall_report import find_last_stall, find_stall_location, is_stall
from vestige.query.stats.costs import span_costs
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10

STALL_MIN_NS = 30 * 10**9
"""Shorter delays are not worth a report."""

STALL_RATIO = 10
STALL_OTHERS_MIN = 2
"""Other spans of the same name that are needed for a median."""

TOKENS_MAX = 1_000_000
COST_MAX_USD = 10.0
"""A run above this should be intended."""

GROWTH_CALLS_MIN = 8
GROWTH_RATIO = 10
GROWTH_TOKENS_MIN = 50_000
"""Every history grows. One that grows tenfold to this size in consecutive calls is unmanaged."""

PRESSURE = 0.8
"""Share of the window above which models forget and the next large result does not fit."""

LOSS = 0.5
LOSS_TOKENS_MIN = 2_000
LOSS_BYTES_MIN = 8_000
"""Half of a smaller request is only a message or two."""

SMALLEST_WINDOW = 2_048
"""No chat model has a smaller window. The model table, which takes 0.2 s to load, is therefore
not needed for short calls."""

FAMILY_WINDOWS = (
    ("gemini", 1_048_576), ("llama-3", 128_000), ("mistral-large", 128_000), ("qwen", 128_000),
)  # fmt: skip
"""Context windows by prefix, for models that genai-prices has without one."""

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
    title="Unusually slow step",
    looks_at="durations of spans of the same type and name: over 30 s, and over 10 times the "
    "median",
    severity="warning",
    confidence=0.7,
    false_positives="work of very different sizes under one name; waiting for a person",
    version=3,
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
        median_ns = median(_duration(evidence, span) for span in spans)
        for span in slow:
            if _duration(evidence, span) > STALL_RATIO * median_ns:
                stalled[span.id] = (span, median_ns)
    outer: set[str] = set()
    for span_id in stalled:
        # The ancestors of a span in `outer` are in it, too.
        outer.update(takewhile(lambda parent: parent not in outer, _ancestors(evidence, span_id)))
    inner = [pair for span_id, pair in stalled.items() if span_id not in outer]
    inner.sort(key=lambda pair: -_duration(evidence, pair[0]))
    for span, median_ns in inner[:FINDINGS_MAX]:
        duration_ns = _duration(evidence, span)
        location = find_stall_location(evidence, span)
        yield make_finding(
            evidence,
            "stalled-step",
            cause=span.id,
            evidence=[span.id],
            message=f"{formatting.single_line(span.type, 20)} "
            f"{formatting.single_line(span.name, 60)} took {formatting.duration(duration_ns)}, "
            f"{duration_ns / max(median_ns, 1):.0f} times the median of "
            f"{formatting.duration(int(median_ns))}{f'; stuck at {location}' if location else ''}.",
        )


@check(
    "standstill",
    title="No activity",
    looks_at="stack dumps that a stalled process records, and whether other records follow",
    severity="warning",
    confidence=0.6,
    false_positives="waiting for a person, a request, or a slow model",
)
def standstill(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome != "running":
        return  # for a finished run, `crash` and `stalled-step` report stalls
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
    """Return the duration; for an open span, the time until the run's last record."""
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
    title="Unusually high usage",
    looks_at="tokens and cost of the run, and input tokens that grow with every call",
    severity="warning",
    confidence=0.7,
    false_positives="a task that is long on purpose",
    version=3,
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
            message=f"{formatting.number(total)} tokens in "
            f"{formatting.pluralize(len(calls), 'model call')} (limit "
            f"{formatting.number(TOKENS_MAX)}); the largest request had "
            f"{formatting.number(_tokens_in(largest) or 0)}.",
        )
    cost = _dollars(evidence, calls)
    if cost > COST_MAX_USD:
        costliest = max(calls, key=lambda span: _dollars(evidence, [span]))
        yield make_finding(
            evidence,
            "runaway-cost",
            kind="runaway/cost",
            cause=costliest.id,
            evidence=[costliest.id],
            message=f"${cost:.2f} in {formatting.pluralize(len(calls), 'model call')} (limit "
            f"${COST_MAX_USD:.0f}); the most expensive cost "
            f"${_dollars(evidence, [costliest]):.2f}.",
        )
    for agent_calls in _by_agent(calls):
        yield from _find_growth(evidence, agent_calls)


def _dollars(evidence: Evidence, calls: list[SpanInfo]) -> float:
    """Return the cost by the price table, or what the program recorded if that is more."""
    recorded = sum(_number(span, "cost_usd") for span in calls)
    return max(recorded, span_costs(calls, evidence.prices).dollars or 0.0)


def _find_growth(evidence: Evidence, calls: list[SpanInfo]) -> Iterator[Finding]:
    known = [(span, tokens) for span in calls if (tokens := _tokens_in(span)) is not None]
    begin = 0
    for end in range(1, len(known) + 1):
        if end < len(known) and known[end][1] > known[end - 1][1]:
            continue
        (first, low), (last, high) = known[begin], known[end - 1]
        count = end - begin
        begin = end
        if count < GROWTH_CALLS_MIN or high < GROWTH_TOKENS_MIN or high < GROWTH_RATIO * low:
            continue
        yield make_finding(
            evidence,
            "runaway-cost",
            kind="runaway/growth",
            confidence=0.6,
            cause=max(
                zip(known[end - count + 1 : end], known[end - count :], strict=False),
                key=lambda pair: pair[0][1] - pair[1][1],
            )[0][0].id,
            evidence=[first.id, last.id],
            message=f"Input grew in {count} consecutive calls, from {formatting.number(low)} to "
            f"{formatting.number(high)} tokens. The cause is the call that added most.",
        )
        return


# --- context window -------------------------------------------------------------------------------


@check(
    "context-pressure",
    title="Context window nearly full",
    looks_at="input tokens and the model's window, and requests that were rejected as too long",
    severity="warning",
    confidence=0.6,
    false_positives="a model with a larger window than the table of genai-prices has",
    version=3,
)
def context_pressure(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.model_calls
    rejected = [span for span in calls if span.status == "error" and was_too_long(evidence, span)]
    if rejected:
        error = str(rejected[0].attributes.get("error.message") or "")
        yield make_finding(
            evidence,
            "context-pressure",
            kind="context/exceeded",
            severity="error",
            confidence=0.95,
            cause=rejected[0].id,
            evidence=[span.id for span in rejected[:EVIDENCE_MAX]],
            message=f"The provider rejected {formatting.pluralize(len(rejected), 'request')} as "
            f"too long: {formatting.single_line(error, 160)}",
        )
    full = [
        (tokens / window, tokens, window, span)
        for span in calls
        if (tokens := _tokens_in(span))
        and (window := _window(span, tokens))
        and tokens > PRESSURE * window
    ]
    # A successful call above the limit shows that the model has a larger window.
    larger = {_model(span) for share, *_, span in full if share > 1 and span.status == "ok"}
    full = [usage for usage in full if _model(usage[3]) not in larger]
    if full:
        share, tokens, window, span = max(full, key=lambda usage: usage[0])
        first = full[0][3]
        yield make_finding(
            evidence,
            "context-pressure",
            kind="context/pressure",
            basis="hypothesis",
            cause=first.id,
            evidence=[first.id, span.id],
            message=f"{formatting.single_line(str(span.attributes.get('model')), 40)}: {tokens:,} "
            f"of {window:,} tokens of the context window ({share:.0%}) in {span.short_id}; "
            f"{formatting.pluralize(len(full), 'call')} above {PRESSURE:.0%}.",
        )


def was_too_long(evidence: Evidence, span: SpanInfo) -> bool:
    error = str(span.attributes.get("error.message") or "") or (evidence.output(span) or "")[:4000]
    return _TOO_LONG.search(error) is not None


def _model(span: SpanInfo) -> str:
    return str(span.attributes.get("model") or "").rpartition("/")[2].lower()


def _window(span: SpanInfo, tokens: int) -> int | None:
    """Return the recorded window, or that of the model table; None if it is unknown."""
    own = span.attributes.get("context_window")
    if isinstance(own, int) and own > 0:
        return own
    model, provider = span.attributes.get("model"), span.attributes.get("provider")
    if not isinstance(model, str) or tokens <= PRESSURE * SMALLEST_WINDOW:
        return None
    window = context_window(model, provider if isinstance(provider, str) else None)
    if window is not None:
        return window
    name = _model(span)
    return next((window for family, window in FAMILY_WINDOWS if name.startswith(family)), None)


@check(
    "history-loss",
    title="Conversation history dropped",
    looks_at="input of consecutive llm calls of one conversation, and repair or compaction spans "
    "between them",
    severity="warning",
    confidence=0.7,
    false_positives="a second, shorter conversation with the same first message",
    version=3,
)
def history_loss(evidence: Evidence) -> Iterator[Finding]:
    openings = {model.span.id: model.opening for model in model_calls(evidence)}
    order = {span.id: index for index, span in enumerate(evidence.run.spans)}
    compactions = [
        index
        for index, span in enumerate(evidence.run.spans)
        if span.type in ("repair", "compaction")
        or (span.type != "llm" and _COMPACTION.search(f"{span.type} {span.name}"))
        or (span.type == "llm" and _COMPACTION.search(span.name))
    ]
    found = 0
    for calls in _by_agent(sent_calls(evidence)):
        for before, after in pairwise(calls):
            start, end = order[before.id], order[after.id]
            if bisect_left(compactions, start) < bisect_right(compactions, end):
                continue
            shrinkage = _format_shrinkage(before, after)
            if shrinkage is None or found >= FINDINGS_MAX:
                continue
            old, new = openings.get(before.id, ""), openings.get(after.id, "")
            if old and new and old != new:
                continue  # another conversation
            found += 1
            same = bool(old and new)
            yield make_finding(
                evidence,
                "history-loss",
                severity="warning" if same else "hint",
                confidence=0.7 if same else 0.4,
                basis="measured" if same else "hypothesis",
                cause=after.id,
                evidence=[after.id, before.id],
                message=f"The request shrank from {shrinkage} between {before.short_id} and "
                f"{after.short_id}, without a repair or compaction.",
                command=f"vestige diff {before.short_id} {after.short_id}",
            )


def _format_shrinkage(before: SpanInfo, after: SpanInfo) -> str | None:
    """Return how much the input shrank, or None if it did not shrink by half."""
    old, new = _tokens_in(before), _tokens_in(after)
    if old is not None and new is not None:
        if old < LOSS_TOKENS_MIN or new >= LOSS * old or new == 0:
            return None
        return f"{old:,} to {new:,} tokens ({1 - new / old:.0%} less)"
    if before.input is None or after.input is None:
        return None
    old, new = before.input.size_bytes, after.input.size_bytes
    if old < LOSS_BYTES_MIN or new >= LOSS * old:
        return None
    return f"{formatting.size(old)} to {formatting.size(new)} ({1 - new / old:.0%} less)"


# --- helpers --------------------------------------------------------------------


def _by_agent(calls: list[SpanInfo]) -> list[list[SpanInfo]]:
    """Group calls that may be one conversation: the same component, name and model."""
    groups: dict[tuple[object, ...], list[SpanInfo]] = {}
    for span in calls:
        key = (span.component, span.name, span.attributes.get("model"))
        groups.setdefault(key, []).append(span)
    return list(groups.values())


def _tokens_in(span: SpanInfo) -> int | None:
    """Return the tokens of the entire prompt.

    HTTP capture counts all input. Programs that copy Anthropic's own count exclude cached tokens,
    which shows if the cached tokens are more than the input.
    """
    value = span.attributes.get("input_tokens")
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    model, provider = span.attributes.get("model"), span.attributes.get("provider")
    cached = _count(span, "cache_read_tokens") + _count(span, "cache_write_tokens")
    is_anthropic = provider == "anthropic" or "claude" in str(model or "")
    return value + cached if is_anthropic and cached > value else value


def _count(span: SpanInfo, name: str) -> int:
    value = span.attributes.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _number(span: SpanInfo, name: str) -> float:
    value = span.attributes.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
