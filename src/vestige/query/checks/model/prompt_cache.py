"""Explain misses of a provider's prompt cache.

Each model call is compared with the call whose cached prefix it should have read: the last call of
its component in the same conversation, or, for single calls of one template, the last call with
nearly the same system prompt. The causes:

    cache/model-changed         each model has its own cache
    cache/warm-prefix-differs   the call that warmed the cache sent another prefix
    cache/key-order             the same JSON in different bytes
    cache/breakpoint            the cache marker moved or is missing
    cache/prefix-changed        different bytes: the first of them, and their contributor
    cache/ttl-gap               the same prefix, but the cache entry has expired
    cache/parallel              the same prefix, but the earlier call was still running
    cache/unexplained           the same prefix, in time: a cause at the provider

A finding is a warning if the response reports the miss, and a hint if usage was not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from vestige.providers.chat_types import Usage
from vestige.providers.prompt_cache import (
    TTL_S,
    BodyPosition,
    PrefixChange,
    cache_ttl_s,
    explain_change,
)
from vestige.query.checks import check, make_finding
from vestige.query.checks.model.intended_prompt import common_ends
from vestige.query.checks.sent_requests import sent_calls
from vestige.query.evidence import Evidence
from vestige.query.formatting import pluralize, single_line
from vestige.record.finding import Finding
from vestige.record.prompt_segments import Segment, parse_segments
from vestige.record.run import SpanInfo

TOKENS_MIN = 1024
"""Shortest prefix that providers cache (Anthropic 1,024 to 4,096 by model, OpenAI 1,024)."""
BYTES_PER_TOKEN = 4
"""Estimate for calls without recorded token counts."""

HIT_SHARE = 0.5
"""Reading less than this share of the cached tokens is a miss."""

CHURN_CALLS_MIN = 3
CHURN_FACTOR = 3
"""A write costs 1.25 input tokens, a read 0.1. With three writes per read, caching loses money."""

REWRITTEN_SHARE = 0.25
"""Share of written tokens that had been written before."""

SIMILAR = 0.8
"""Share of equal characters at both ends that makes two system prompts one template."""

_VISIBLE_IN_DIFF = frozenset(
    {"cache/prefix-changed", "cache/warm-prefix-differs", "cache/key-order", "cache/breakpoint"}
)
"""Causes that a diff of the two requests shows."""

HINTS_MAX = 20
"""Hints per component. Without recorded usage, more of them add nothing."""

THREADS_MAX = 16
"""Parallel conversations of one component."""

EVIDENCE_MAX = 6


# --- the checks -----------------------------------------------------------------------------------


@check(
    "cache-miss",
    title="Prompt cache miss",
    looks_at="consecutive llm calls of one conversation: cached tokens, models, times, and the "
    "bytes of the cacheable prefix; prompt.assembly segments for the contributor of a change",
    severity="warning",
    confidence=0.9,
    false_positives="a side task on the same messages with another model; a prompt that changes "
    "on purpose; only a hint if usage was not recorded",
    version=2,
)
def cache_miss(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per cause and component: the first miss, and the number of misses."""
    groups: dict[tuple[str, str, str], list[_Miss]] = {}
    for miss in _find_misses(evidence):
        key = (miss.after.span.component, miss.kind, miss.location)
        groups.setdefault(key, []).append(miss)
    for misses in groups.values():
        yield _to_finding(evidence, misses)


@check(
    "cache-churn",
    title="Prompt cache written but rarely read",
    looks_at="cache_write_tokens and cache_read_tokens of the calls of a run",
    severity="warning",
    confidence=0.9,
    false_positives="a run that fills a cache for later runs",
    version=2,
)
def cache_churn(evidence: Evidence) -> Iterator[Finding]:
    groups: dict[str, list[_Call]] = {}
    for span in sent_calls(evidence):
        call = _Call(span, evidence)
        if call.usage.cache_write_tokens is not None or call.usage.cache_read_tokens is not None:
            groups.setdefault(span.component, []).append(call)
    for component, calls in groups.items():
        written = sum(call.usage.cache_write_tokens or 0 for call in calls)
        read = sum(call.usage.cache_read_tokens or 0 for call in calls)
        writers = [call for call in calls if (call.usage.cache_write_tokens or 0) >= TOKENS_MIN]
        if len(writers) < CHURN_CALLS_MIN or written < CHURN_FACTOR * max(read, TOKENS_MIN):
            continue
        if written - max(call.cached_tokens for call in calls) < REWRITTEN_SHARE * written:
            continue  # a prefix that grows with large results is mostly written once
        cause = writers[1].span  # the first call has to write; the second should have read
        yield make_finding(
            evidence,
            "cache-churn",
            kind="cache/churn",
            message=f"{pluralize(len(calls), 'call')} of {single_line(component, 60)} wrote "
            f"{written:,} tokens to the prompt cache and read only {read:,}; {len(writers)} calls "
            "wrote an entire prefix.",
            cause=cause.id,
            evidence=[call.span.id for call in writers[:EVIDENCE_MAX]],
        )


def _to_finding(evidence: Evidence, misses: list[_Miss]) -> Finding:
    miss = next((miss for miss in misses if miss.measured), misses[0])
    least = "at least " if len(misses) >= HINTS_MAX and not miss.measured else ""
    times = f" ({least}{len(misses)} times)" if len(misses) > 1 else ""
    before, after = miss.before.span, miss.after.span
    spans = [after.id, before.id, *miss.evidence, *(later.after.span.id for later in misses[1:])]
    unsure = miss.kind in ("cache/unexplained", "cache/parallel")
    read = miss.after.usage.cache_read_tokens
    usage = f"read {read:,} cached tokens" if read is not None else "has no recorded cache usage"
    return make_finding(
        evidence,
        "cache-miss",
        kind=miss.kind,
        message=f"{miss.message}; the call {usage}{times}.",
        severity="warning" if miss.measured and not unsure else "hint",
        confidence=miss.confidence if miss.measured else min(0.5, miss.confidence),
        basis="measured" if miss.measured and not unsure else "hypothesis",
        cause=(before if miss.blame_before else after).id,
        evidence=list(dict.fromkeys(spans))[:EVIDENCE_MAX],
        command=f"vestige diff {before.short_id} {after.short_id}"
        if miss.kind in _VISIBLE_IN_DIFF
        else f"vestige span {after.short_id}",
    )


# --- pairs of calls --------------------------------------------------------------------


class _Call:
    """A model call, with the facts that matter for caching."""

    def __init__(self, span: SpanInfo, evidence: Evidence) -> None:
        self.span = span
        self.evidence = evidence
        self.warm = span.attributes.get("warm") in (True, "true", 1)
        self.usage = _usage(span, evidence)

    def read_request(self) -> None:
        """Extract facts, so that the parsed request need not stay in memory."""
        request = self.evidence.request(self.span)
        model = self.span.attributes.get("model")
        self.model = str(model) if model else (request.model if request is not None else None)
        self.provider = request.provider if request is not None else None
        self.cacheable_bytes = request.prefix_end if request is not None else 0
        self.marked = bool(request.breakpoints) if request is not None else False
        self.tools = sorted(tool.name for tool in request.tools) if request is not None else []
        self.system = ""
        self.message_hashes: list[int] = []
        for message in request.messages if request is not None else ():
            if message.role == "system":
                self.system += message.text
            else:
                calls = tuple(call.id or call.name for call in message.calls)
                results = tuple((result.call_id, result.text) for result in message.results)
                self.message_hashes.append(hash((message.role, message.text, calls, results)))

    @property
    def body(self) -> str:
        return self.evidence.input(self.span) or ""

    @property
    def available_tokens(self) -> int:
        """Tokens in the cache after this call: recorded, or estimated from the size."""
        written, read = self.usage.cache_write_tokens, self.usage.cache_read_tokens
        if written or (self.marked and written is not None):
            return written + (read or 0)
        if self.provider == "anthropic" and not self.marked:
            return 0  # without a marker, Anthropic does not cache
        if self.usage.input_tokens and self.provider != "anthropic":
            return self.usage.input_tokens
        return self.cacheable_bytes // BYTES_PER_TOKEN

    @property
    def cached_tokens(self) -> int:
        """Recorded tokens in the cache after this call."""
        return (self.usage.cache_write_tokens or 0) + (self.usage.cache_read_tokens or 0)

    @property
    def ended_ns(self) -> int:
        return self.span.started_ns + (self.span.duration_ns or 0)


def _usage(span: SpanInfo, evidence: Evidence) -> Usage:
    """Return usage from the attributes, completed from the response."""
    usage = {
        name: value if type(value := span.attributes.get(name)) is int else None
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    }
    if usage["cache_read_tokens"] is None:
        response = evidence.response(span)
        if response is not None:
            for name, value in usage.items():
                usage[name] = value if value is not None else getattr(response.usage, name)
    return Usage(**usage)


@dataclass(slots=True)
class _Thread:
    """A conversation: its last call, and the last call of each model."""

    last: _Call
    by_model: dict[str | None, _Call] = field(default_factory=dict)

    def add(self, call: _Call) -> None:
        self.last = call
        self.by_model[call.model] = call


@dataclass(slots=True)
class _Miss:
    """A call that did not read the prefix that an earlier call had cached."""

    kind: str
    before: _Call
    after: _Call
    message: str
    measured: bool
    confidence: float = 0.9
    location: str = ""
    """The changed part. Misses with the same location have the same cause."""
    blame_before: bool = False
    evidence: list[str] = field(default_factory=list)


def _find_misses(evidence: Evidence) -> Iterator[_Miss]:
    threads: dict[str, list[_Thread]] = {}
    hints: Counter[str] = Counter()
    for span in sent_calls(evidence):
        if span.status not in ("ok", None):
            continue  # a failed call caches nothing
        call = _Call(span, evidence)
        call.read_request()
        own = threads.setdefault(span.component, [])
        thread = next((t for t in reversed(own) if _is_continuation(t.last, call)), None)
        if thread is None:
            template = next((t.last for t in reversed(own) if _same_template(t.last, call)), None)
            before, thread = template, _Thread(call)
        else:
            before = thread.by_model.get(call.model, thread.last)
            own.remove(thread)
        own.append(thread)
        del own[:-THREADS_MAX]
        has_usage = call.usage.cache_read_tokens is not None
        if before is not None and (has_usage or hints[span.component] < HINTS_MAX):
            miss = _compare(before, call, template_only=thread.last is call)
            if miss is not None:
                hints[span.component] += not miss.measured
                yield miss
        thread.add(call)


def _is_continuation(before: _Call, after: _Call) -> bool:
    """Return whether both are of one conversation: the same start, or half of the messages."""
    old, new = before.message_hashes, after.message_hashes
    if not old or not new:
        return before.provider is None and after.provider is None  # no bodies: only order is known
    if old[0] == new[0]:
        return True
    repeated = set(new)
    return 2 * sum(message in repeated for message in old) >= len(old)


def _same_template(before: _Call, after: _Call) -> bool:
    """Return whether both have the same model and tools, and nearly the same system prompt."""
    if before.model != after.model or before.tools != after.tools:
        return False
    if len(before.system) < TOKENS_MIN * BYTES_PER_TOKEN:
        return False
    head, tail = common_ends(before.system, after.system)
    return head + tail >= SIMILAR * max(len(before.system), len(after.system))


# --- causes --------------------------------------------------------------------


def _compare(before: _Call, after: _Call, template_only: bool) -> _Miss | None:
    measured = _is_miss(before, after, template_only)
    if measured is False:
        return None
    return _explain(before, after, template_only, sure=bool(measured))


def _is_miss(before: _Call, after: _Call, template_only: bool) -> bool | None:
    """Return whether the response reports a miss; None if it reports no cache usage."""
    available = len(before.system) // BYTES_PER_TOKEN if template_only else before.available_tokens
    if available < TOKENS_MIN:
        return False
    read = after.usage.cache_read_tokens
    if read is None:
        return None
    if read == 0:
        return True
    return not template_only and read < HIT_SHARE * before.cached_tokens


def _explain(before: _Call, after: _Call, template_only: bool, sure: bool) -> _Miss | None:
    if before.model != after.model and before.model and after.model:
        message = (
            f"The model changed from {single_line(before.model, 60)} to "
            f"{single_line(after.model, 60)}, and each has its own cache"
        )
        return _Miss("cache/model-changed", before, after, message, sure, 0.85, after.model)
    old, new = before.evidence.request(before.span), after.evidence.request(after.span)
    if old is None or new is None:
        return _explain_by_fingerprint(before, after, sure)
    old_body, new_body = before.body.encode(), after.body.encode()
    change = explain_change(old, old_body, new, new_body)
    if change is None or not (change.before or change.breakpoint_moved):
        ttl_s = cache_ttl_s(old, old_body)
        return None if template_only else _explain_same_prefix(before, after, ttl_s, sure)
    if change.before and change.after:
        part = change.before.part
        if template_only and part.kind == "message" and part.role != "system":
            return None  # calls of one template differ after the system prompt
        if not sure and old.prompt and part.path == old.prompt[-1].path:
            return None  # only the last message changed: the rest can be read from the cache
        return _explain_bytes(before, after, change, change.before, change.after, sure)
    return _explain_breakpoint(before, after, change, sure)


def _explain_same_prefix(before: _Call, after: _Call, ttl_s: int, sure: bool) -> _Miss | None:
    """Explain a miss of an unchanged prefix: by time, or by the provider."""
    gap_s = (after.span.started_ns - before.ended_ns) / 1e9
    if gap_s > ttl_s:
        earlier = "the warming call" if before.warm else "the previous call"
        message = (
            f"The prefix is the same, but {earlier} was {gap_s:,.0f} s ago and a cache entry "
            f"expires after {ttl_s:,} s"
        )
        return _Miss("cache/ttl-gap", before, after, message, sure, 0.9)
    if not sure:
        return None
    if gap_s < 0:
        message = (
            "The prefix is the same, but the previous call was still running, so it was not cached"
        )
        return _Miss("cache/parallel", before, after, message, sure, 0.7)
    message = (
        f"The prefix is the same and {gap_s:,.1f} s old: it was evicted, or another server answered"
    )
    return _Miss("cache/unexplained", before, after, message, sure, 0.5)


def _explain_by_fingerprint(before: _Call, after: _Call, sure: bool) -> _Miss | None:
    """Explain a miss without bodies, by the recorded fingerprints of the prefixes."""
    name = "prefix.fingerprint"
    old, new = before.span.attributes.get(name), after.span.attributes.get(name)
    if not (old and new):
        return None  # the calls may belong to different conversations
    if old == new:
        return _explain_same_prefix(before, after, TTL_S, sure)
    kind = "cache/warm-prefix-differs" if before.warm else "cache/prefix-changed"
    message = (
        f"The prefix's fingerprint changed from {single_line(str(old), 20)} to "
        f"{single_line(str(new), 20)} (no bodies to compare)"
    )
    return _Miss(kind, before, after, message, sure, 0.7, blame_before=before.warm)


def _explain_breakpoint(before: _Call, after: _Call, change: PrefixChange, sure: bool) -> _Miss:
    old = change.breakpoints_before[-1]
    if change.breakpoints_after and change.breakpoints_after[-1] == old:
        message = (
            f"The cache breakpoint moved back within {old}, from {change.bytes_before:,} to "
            f"{change.bytes_after:,} bytes"
        )
    elif change.breakpoints_after:
        message = f"The cache breakpoint moved back from {old} to {change.breakpoints_after[-1]}"
    else:
        message = f"The cache breakpoint at {old} is missing, so the request does not use the cache"
    return _Miss("cache/breakpoint", before, after, message, sure, 0.9)


def _explain_bytes(
    before: _Call,
    after: _Call,
    change: PrefixChange,
    old: BodyPosition,
    new: BodyPosition,
    sure: bool,
) -> _Miss:
    contributor, spans = _find_contributor(before, after, new.offset)
    details = (
        f"byte {new.offset:,} ({new.part.path}): "
        f'"{single_line(old.excerpt, 60)}" became "{single_line(new.excerpt, 60)}"'
    )
    if contributor:
        details += f"; contributed by {contributor}"
    if before.warm != after.warm:
        message = f"The warming call sent a different prefix at {details}"
        kind = "cache/warm-prefix-differs"
    elif change.same_json:
        message = f"The prefix is the same JSON in different bytes (key order, blanks) at {details}"
        kind = "cache/key-order"
    else:
        message = f"The cacheable prefix changed at {details}"
        kind = "cache/prefix-changed"
    return _Miss(
        kind,
        before,
        after,
        message,
        sure,
        0.95 if sure else 0.5,
        (contributor or new.part.kind).partition(" (")[0],
        blame_before=before.warm and not after.warm,
        evidence=spans,
    )


# --- contributors --------------------------------------------------------------------


def _find_contributor(before: _Call, after: _Call, new_at: int) -> tuple[str | None, list[str]]:
    """Return the contributor of the changed segment, with sizes, and the assembly spans."""
    old_span, new_span = (call.evidence.assembly(call.span) for call in (before, after))
    if new_span is None:
        return None, []
    old = parse_segments(before.evidence.output(old_span)) if old_span else []
    new = parse_segments(after.evidence.output(new_span))
    spans = [new_span.id, *([old_span.id] if old_span else [])]
    sizes = {segment.contributor: segment.length for segment in old}
    changed: Segment | None = None
    if new_span.attributes.get("ranges") == "body":
        touching = [segment for segment in new if segment.begin <= new_at <= segment.end]
        resized = [s for s in touching if sizes.get(s.contributor, s.length) != s.length]
        inside = [s for s in touching if new_at < s.end]
        changed = next(iter(resized or inside or touching), None)
    if changed is None and old:
        return _first_changed_segment(old, new), spans
    if changed is None:
        return None, []
    old_length = sizes.get(changed.contributor)
    return _format_segment(changed.contributor, old_length, changed.length), spans


def _first_changed_segment(old: list[Segment], new: list[Segment]) -> str | None:
    """Return the first segment that is new, missing or resized, for requests without ranges."""
    for before, after in zip(old, new, strict=False):
        if before.contributor == after.contributor:
            if before.length != after.length:
                return _format_segment(after.contributor, before.length, after.length)
        elif any(segment.contributor == before.contributor for segment in new):
            return f"{single_line(after.contributor, 60)} (new)"
        else:
            return f"{single_line(before.contributor, 60)} (missing)"
    return None


def _format_segment(contributor: str, old_bytes: int | None, new_bytes: int) -> str:
    name = single_line(contributor, 60)
    if old_bytes is None:
        return f"{name} ({new_bytes:,} bytes)"
    if old_bytes == new_bytes:
        return f"{name} ({new_bytes:,} bytes, different text)"
    return f"{name} ({old_bytes:,} -> {new_bytes:,} bytes)"
