"""Cache: why a provider's prompt cache was missed, six causes told apart.

Each model call is compared with the one that it should have built on: the last call of its
component that shares messages with it (the conversation went on), or, where single calls
share a template, the last one that begins with nearly the same system prompt. Then:

    cache/model-changed         another model has another cache
    cache/warm-prefix-differs   the call that was to warm the cache sent another prefix
    cache/key-order             the same JSON in different bytes
    cache/breakpoint            the marker moved or went
    cache/prefix-changed        other bytes: the first of them, and who contributed it
    cache/ttl-gap               the same prefix, too late
    cache/parallel              the same prefix, while the first call was still running
    cache/unexplained           the same prefix, in time: the provider's side

A finding needs a miss that the answer shows. Where usage was not recorded it is a hint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from vestige.providers.models import Usage
from vestige.providers.prompt_cache import (
    TTL_S,
    BodyPosition,
    PrefixChange,
    cache_ttl_s,
    explain_change,
)
from vestige.query.checks import check, make_finding
from vestige.query.checks.model.history_mutation import ends_in_common
from vestige.query.evidence import Evidence
from vestige.query.formatting import pluralize, single_line
from vestige.record.finding import Finding
from vestige.record.prompt_segments import Segment, parse_segments
from vestige.record.run import SpanInfo

TOKENS_MIN = 1024
"""Providers cache no shorter prefix (Anthropic 1,024 to 4,096 by model, OpenAI 1,024)."""
BYTES_PER_TOKEN = 4
"""A rule of thumb, used only where no count was recorded."""

FAR_BELOW = 0.5
"""Reading less than this share of what the call before left in the cache is a miss."""

CHURN_CALLS_MIN = 3
CHURN_FACTOR = 3
"""Writes cost 1.25 times an input token and reads a tenth: below one read to three writes, caching loses money."""

CHURN_AGAIN = 0.25
"""Of what was written, the share that had been written before."""

ALIKE = 0.8
"""Two system prompts with this share in common at their ends come from one template."""

_IN_THE_BYTES = frozenset(
    {"cache/prefix-changed", "cache/warm-prefix-differs", "cache/key-order", "cache/breakpoint"}
)
"""What a diff of the two requests shows."""

UNSURE_MAX = 20
"""Hints of one component that are looked into: without usage, more of them say no more."""

THREADS_MAX = 16
"""Conversations of one component that are followed at once."""

EVIDENCE_MAX = 6


# --- the checks -----------------------------------------------------------------------------------


@check(
    "cache-miss",
    title="The prompt cache was missed",
    looks_at="consecutive llm calls of one conversation: cached tokens, models, times, and the bytes of "
    "the cacheable prefix; prompt.assembly segments for who changed it",
    severity="warning",
    confidence=0.9,
    false_positives="a side task on the same messages with another model; a prompt that is meant to "
    "change; without recorded usage it is only a hint",
)
def cache_miss(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each cause in each component: the first time, and how often."""
    found: dict[tuple[str, str, str], list[_Miss]] = {}
    for miss in _find_misses(evidence):
        key = (miss.after.span.component, miss.kind, miss.where)
        found.setdefault(key, []).append(miss)
    for misses in found.values():
        yield _tell(evidence, misses)


@check(
    "cache-churn",
    title="The cache is written again and again, and hardly read",
    looks_at="cache_write_tokens against cache_read_tokens over the calls of a run",
    severity="warning",
    confidence=0.9,
    false_positives="a run that fills a cache which later runs read",
    version=2,
)
def cache_churn(evidence: Evidence) -> Iterator[Finding]:
    groups: dict[str, list[_Call]] = {}
    for span in evidence.model_calls:
        call = _Call(span, evidence)
        if call.usage.cache_write_tokens is not None or call.usage.cache_read_tokens is not None:
            groups.setdefault(span.component, []).append(call)
    for component, calls in groups.items():
        written = sum(call.usage.cache_write_tokens or 0 for call in calls)
        read = sum(call.usage.cache_read_tokens or 0 for call in calls)
        writers = [call for call in calls if (call.usage.cache_write_tokens or 0) >= TOKENS_MIN]
        if len(writers) < CHURN_CALLS_MIN or written < CHURN_FACTOR * max(read, TOKENS_MIN):
            continue
        if written - max(call.cached_tokens for call in calls) < CHURN_AGAIN * written:
            continue  # a prefix that grows by large results: nearly all of it was written once
        cause = writers[1].span  # the first call has to write; the second should have read
        yield make_finding(
            evidence,
            "cache-churn",
            kind="cache/churn",
            message=f"{pluralize(len(calls), 'call')} of {single_line(component, 60)} wrote {written:,} tokens to the "
            f"prompt cache and read {read:,} back; {len(writers)} of them wrote a whole prefix.",
            cause=cause.id,
            evidence=[call.span.id for call in writers[:EVIDENCE_MAX]],
        )


def _tell(evidence: Evidence, misses: list[_Miss]) -> Finding:
    miss = next((each for each in misses if each.measured), misses[0])
    more = " or more" if len(misses) >= UNSURE_MAX and not miss.measured else ""
    times = f" ({len(misses)}{more} times in this run)" if len(misses) > 1 else ""
    before, after = miss.before.span, miss.after.span
    spans = [after.id, before.id, *miss.evidence, *(other.after.span.id for other in misses[1:])]
    compare = miss.kind in _IN_THE_BYTES
    unsure = miss.kind in ("cache/unexplained", "cache/parallel")
    read = miss.after.usage.cache_read_tokens
    seen = f"read {read:,} cached tokens" if read is not None else "has no cache count recorded"
    return make_finding(
        evidence,
        "cache-miss",
        kind=miss.kind,
        message=f"{miss.message}; the call {seen}{times}.",
        severity="warning" if miss.measured and not unsure else "hint",
        confidence=miss.confidence if miss.measured else min(0.5, miss.confidence),
        basis="measured" if miss.measured and not unsure else "hypothesis",
        cause=(before if miss.blame_before else after).id,
        evidence=list(dict.fromkeys(spans))[:EVIDENCE_MAX],
        command=f"vestige diff {before.short_id} {after.short_id}"
        if compare
        else f"vestige span {after.short_id}",
    )


# --- a call, and the one that it builds on ----------------------------------------------------------


class _Call:
    """One model call, and what a cache would care about."""

    def __init__(self, span: SpanInfo, evidence: Evidence) -> None:
        self.span = span
        self.evidence = evidence
        self.warm = span.attributes.get("warm") in (True, "true", 1)
        self.usage = _usage(span, evidence)

    def read_request(self) -> None:
        """Facts that are kept when the request itself is not."""
        request = self.evidence.request(self.span)
        said = self.span.attributes.get("model")
        self.model = str(said) if said else (request.model if request is not None else None)
        self.provider = request.provider if request is not None else None
        self.cacheable_bytes = request.prefix_end if request is not None else 0
        self.marked = bool(request.breakpoints) if request is not None else False
        self.tools = sorted(tool.name for tool in request.tools) if request is not None else []
        self.system = ""
        self.said: list[int] = []
        for message in request.messages if request is not None else ():
            if message.role == "system":
                self.system += message.text
            else:
                calls = tuple(call.id or call.name for call in message.calls)
                results = tuple((result.call_id, result.text) for result in message.results)
                self.said.append(hash((message.role, message.text, calls, results)))

    @property
    def body(self) -> str:
        return self.evidence.input(self.span) or ""

    @property
    def left_tokens(self) -> int:
        """What this call left in the cache for the next one, by its own count or by size."""
        written, read = self.usage.cache_write_tokens, self.usage.cache_read_tokens
        if written or (self.marked and written is not None):
            return written + (read or 0)
        if self.provider == "anthropic" and not self.marked:
            return 0  # it was not asked to cache
        if self.usage.input_tokens and self.provider != "anthropic":
            return self.usage.input_tokens
        return self.cacheable_bytes // BYTES_PER_TOKEN

    @property
    def cached_tokens(self) -> int:
        """What was in the cache after this call, by its own count."""
        return (self.usage.cache_write_tokens or 0) + (self.usage.cache_read_tokens or 0)

    @property
    def ended_ns(self) -> int:
        return self.span.started_ns + (self.span.duration_ns or 0)


def _usage(span: SpanInfo, evidence: Evidence) -> Usage:
    """As attributes say it; what they do not say, as the answer does."""
    said = {
        name: value if type(value := span.attributes.get(name)) is int else None
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    }
    if said["cache_read_tokens"] is None:
        response = evidence.response(span)
        if response is not None:
            for name in said:
                said[name] = said[name] if said[name] is not None else getattr(response.usage, name)
    return Usage(**said)


@dataclass(slots=True)
class _Thread:
    """A conversation as far as it was followed: its last call, and the last of each model."""

    last: _Call
    by_model: dict[str | None, _Call] = field(default_factory=dict)

    def add(self, call: _Call) -> None:
        self.last = call
        self.by_model[call.model] = call


@dataclass(slots=True)
class _Miss:
    """A call that did not read what the one before had left."""

    kind: str
    before: _Call
    after: _Call
    message: str
    measured: bool
    confidence: float = 0.9
    where: str = ""
    """What changed: the same place again is the same cause."""
    blame_before: bool = False
    evidence: list[str] = field(default_factory=list)


def _find_misses(evidence: Evidence) -> Iterator[_Miss]:
    threads: dict[str, list[_Thread]] = {}
    unsure: Counter[str] = Counter()
    for span in evidence.model_calls:
        if span.status not in ("ok", None):
            continue  # what failed left nothing in a cache
        call = _Call(span, evidence)
        call.read_request()
        own = threads.setdefault(span.component, [])
        thread = next((t for t in reversed(own) if _goes_on(t.last, call)), None)
        if thread is None:
            template = next((t.last for t in reversed(own) if _same_template(t.last, call)), None)
            before, thread = template, _Thread(call)
        else:
            before = thread.by_model.get(call.model, thread.last)
            own.remove(thread)
        own.append(thread)
        del own[:-THREADS_MAX]
        counted_read = call.usage.cache_read_tokens is not None
        if before is not None and (counted_read or unsure[span.component] < UNSURE_MAX):
            miss = _compare(before, call, template_only=thread.last is call)
            if miss is not None:
                unsure[span.component] += not miss.measured
                yield miss
        thread.add(call)


def _goes_on(before: _Call, after: _Call) -> bool:
    """The same conversation: it begins with the same message, or most of it is there again."""
    if not before.said or not after.said:
        return before.provider is None and after.provider is None  # no bodies: only order is known
    if before.said[0] == after.said[0]:
        return True
    again = set(after.said)
    return 2 * sum(each in again for each in before.said) >= len(before.said)


def _same_template(before: _Call, after: _Call) -> bool:
    """Single calls of one kind: one model, the same tools, nearly the same system prompt."""
    if before.model != after.model or before.tools != after.tools:
        return False
    if len(before.system) < TOKENS_MIN * BYTES_PER_TOKEN:
        return False
    head, tail = ends_in_common(before.system, after.system)
    return head + tail >= ALIKE * max(len(before.system), len(after.system))


# --- why --------------------------------------------------------------------------------------------


def _compare(before: _Call, after: _Call, template_only: bool) -> _Miss | None:
    measured = _is_miss(before, after, template_only)
    if measured is False:
        return None
    return _explain(before, after, template_only, sure=bool(measured))


def _is_miss(before: _Call, after: _Call, template_only: bool) -> bool | None:
    """Whether the answer shows a miss; None where it does not say."""
    left = len(before.system) // BYTES_PER_TOKEN if template_only else before.left_tokens
    if left < TOKENS_MIN:
        return False
    read = after.usage.cache_read_tokens
    if read is None:
        return None
    if read == 0:
        return True
    left = (before.usage.cache_read_tokens or 0) + (before.usage.cache_write_tokens or 0)
    return not template_only and read < FAR_BELOW * left


def _explain(before: _Call, after: _Call, template_only: bool, sure: bool) -> _Miss | None:
    if before.model != after.model and before.model and after.model:
        told = (
            f"The model changed from {single_line(before.model, 60)} to {single_line(after.model, 60)}, "
            "and each has its own cache"
        )
        return _Miss("cache/model-changed", before, after, told, sure, 0.85, after.model)
    old, new = before.evidence.request(before.span), after.evidence.request(after.span)
    if old is None or new is None:
        return _explain_blind(before, after, sure)
    old_body, new_body = before.body.encode(), after.body.encode()
    change = explain_change(old, old_body, new, new_body)
    if change is None or not (change.before or change.breakpoint_moved):
        ttl_s = cache_ttl_s(old, old_body)
        return None if template_only else _explain_same(before, after, ttl_s, sure)
    if change.before and change.after:
        part = change.before.part
        if template_only and part.kind == "message" and part.role != "system":
            return None  # single calls differ there: the template is the same
        if not sure and old.prompt and part.path == old.prompt[-1].path:
            return None  # all but the last message can still be read
        return _explain_bytes(before, after, change, change.before, change.after, sure)
    return _explain_breakpoint(before, after, change, sure)


def _explain_same(before: _Call, after: _Call, ttl_s: int, sure: bool) -> _Miss | None:
    """The same prefix: time, or the provider."""
    gap_s = (after.span.started_ns - before.ended_ns) / 1e9
    if gap_s > ttl_s:
        who = "the warming call" if before.warm else "the call before"
        told = f"The prefix is the same, but {who} was {gap_s:,.0f} s ago and a cache lives {ttl_s:,} s"
        return _Miss("cache/ttl-gap", before, after, told, sure, 0.9)
    if not sure:
        return None
    if gap_s < 0:
        told = "The prefix is the same, but the call before was still running: there was nothing to read"
        return _Miss("cache/parallel", before, after, told, sure, 0.7)
    told = f"The prefix is the same and {gap_s:,.1f} s old: evicted, or another server answered"
    return _Miss("cache/unexplained", before, after, told, sure, 0.5)


def _explain_blind(before: _Call, after: _Call, sure: bool) -> _Miss | None:
    """Without bodies: by the fingerprints that the program stamped, and by time."""
    name = "prefix.fingerprint"
    old, new = before.span.attributes.get(name), after.span.attributes.get(name)
    if not (old and new):
        return None  # who knows whether they are of one conversation
    if old == new:
        return _explain_same(before, after, TTL_S, sure)
    kind = "cache/warm-prefix-differs" if before.warm else "cache/prefix-changed"
    told = (
        f"The prefix's fingerprint changed from {single_line(str(old), 20)} to "
        f"{single_line(str(new), 20)} (no bodies to compare)"
    )
    return _Miss(kind, before, after, told, sure, 0.7, blame_before=before.warm)


def _explain_breakpoint(before: _Call, after: _Call, change: PrefixChange, sure: bool) -> _Miss:
    was = change.breakpoints_before[-1]
    if change.breakpoints_after:
        told = f"The cache breakpoint moved back from {was} to {change.breakpoints_after[-1]}"
    else:
        told = f"The cache breakpoint at {was} is gone: the request does not ask for the cache"
    return _Miss("cache/breakpoint", before, after, told, sure, 0.9)


def _explain_bytes(
    before: _Call,
    after: _Call,
    change: PrefixChange,
    old: BodyPosition,
    new: BodyPosition,
    sure: bool,
) -> _Miss:
    where = f"byte {new.offset:,} ({new.part.path})"
    texts = f'"{single_line(old.excerpt, 60)}" became "{single_line(new.excerpt, 60)}"'
    who, spans = _find_contributor(before, after, old.offset, new.offset)
    by = f"; contributed by {who}" if who else ""
    place = (who or new.part.kind).partition(" (")[0]
    if before.warm != after.warm:
        told = f"The warming call's prefix is not the real one's: at {where} {texts}{by}"
        kind = "cache/warm-prefix-differs"
    elif change.same_json:
        told = f"The prefix has the same JSON in different bytes (order of keys, blanks): at {where} {texts}{by}"
        kind = "cache/key-order"
    else:
        told = f"The cacheable prefix changed at {where}: {texts}{by}"
        kind = "cache/prefix-changed"
    return _Miss(
        kind,
        before,
        after,
        told,
        sure,
        0.95 if sure else 0.5,
        place,
        blame_before=before.warm and not after.warm,
        evidence=spans,
    )


# --- who --------------------------------------------------------------------------------------------


def _find_contributor(
    before: _Call, after: _Call, old_at: int, new_at: int
) -> tuple[str | None, list[str]]:
    """Whose segment changed, with its sizes, and the spans that say so."""
    old_span, new_span = (call.evidence.assembly(call.span) for call in (before, after))
    if new_span is None:
        return None, []
    old = parse_segments(before.evidence.output(old_span)) if old_span else []
    new = parse_segments(after.evidence.output(new_span))
    spans = [new_span.id, *([old_span.id] if old_span else [])]
    sizes = {segment.contributor: segment.length for segment in old}
    found: Segment | None = None
    if new_span.attributes.get("ranges") == "body":
        there = [segment for segment in new if segment.begin <= new_at <= segment.end]
        grown = [s for s in there if sizes.get(s.contributor, s.length) != s.length]
        inside = [s for s in there if new_at < s.end]
        found = next(iter(grown or inside or there), None)
    if found is None and old:
        return _first_other_segment(old, new), spans
    if found is None:
        return None, []
    return _with_sizes(found.contributor, sizes.get(found.contributor), found.length), spans


def _first_other_segment(old: list[Segment], new: list[Segment]) -> str | None:
    """By sizes alone, where ranges do not tell: the first that is not as it was."""
    for was, now in zip(old, new, strict=False):
        if was.contributor == now.contributor:
            if was.length != now.length:
                return _with_sizes(now.contributor, was.length, now.length)
        elif any(segment.contributor == was.contributor for segment in new):
            return f"{single_line(now.contributor, 60)} (new)"
        else:
            return f"{single_line(was.contributor, 60)} (gone)"
    return None


def _with_sizes(contributor: str, was: int | None, now: int) -> str:
    name = single_line(contributor, 60)
    if was is None:
        return f"{name} ({now:,} bytes)"
    return (
        f"{name} ({was:,} -> {now:,} bytes)"
        if was != now
        else f"{name} ({now:,} bytes, other text)"
    )
