"""Explain a miss of a provider's prompt cache: find the first change in the shared prefix.

The provider compares prompts, not bodies: tools, then system, then messages, in any order of the
JSON. A `cache_control` marker is not part of the cached text. So parts are compared in the order
of the prompt and without markers. Offsets refer to the body as it was sent.

    change = explain_change(before, before_body, after, after_body)
    if change and change.before:
        print(change.before.part.path, change.before.offset, change.before.excerpt)
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.providers.chat_types import PromptPart, Request
from vestige.providers.json_offsets import Layout, Span, find_markers

TTL_S = 300
"""Seconds that an unused prefix stays in the cache: Anthropic's default, OpenAI's minimum."""

TTL_LONG_S = 3600
"""Anthropic with `ttl: "1h"`."""

TTL_DAY_S = 24 * 3600
"""OpenAI with `prompt_cache_retention: "24h"`."""

EXCERPT = 20
"""Bytes shown before and after a difference."""


class BodyPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a difference in one of two bodies."""

    part: PromptPart
    offset: int
    """In bytes of the body."""
    excerpt: str
    """The bytes around it, as text."""


class PrefixChange(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two requests that should have shared a cached prefix."""

    before: BodyPosition | None
    """The first difference; None if the shared prefix is identical."""
    after: BodyPosition | None
    same_json: bool
    """True if the prefixes differ only in their JSON text (order of keys, spaces, escapes)."""
    model_before: str | None
    model_after: str | None
    breakpoints_before: list[str]
    """Paths where prefixes ended, in the order of the prompt."""
    breakpoints_after: list[str]
    bytes_before: int
    """Bytes of the last part with a breakpoint that the prefix contained, and contains now."""
    bytes_after: int
    breakpoint_moved: bool
    """True if the last breakpoint is missing or earlier than before. A later one is normal."""

    @property
    def model_changed(self) -> bool:
        return self.model_before != self.model_after


def fingerprint(request: Request, body: bytes) -> str:
    """Return 16 hex digits that identify the bytes of the cacheable prefix."""
    digest = hashlib.sha256()
    if not request.prompt:
        digest.update(body[: request.prefix_end])
    for part, end in _cacheable(request):
        digest.update(_Clean(body, part, end).text)
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def cache_ttl_s(request: Request, body: bytes) -> int:
    """Return how long the prefix of this request stays cached; the shortest of its parts."""
    if request.provider in ("openai", "openai-responses") and not request.breakpoints:
        begin, end = Layout(body).span("prompt_cache_retention")
        return TTL_DAY_S if body[begin:end] == b'"24h"' else TTL_S
    values = [
        body[marker.value[0] : marker.value[1]]
        for part in request.prompt
        for marker in find_markers(body, part.begin, part.end)
    ]
    layout = Layout(body) if request.breakpoints else None
    if layout and layout.marked():
        begin, end = layout.span("cache_control")
        values.append(body[begin:end])
    return TTL_LONG_S if values and all(b'"1h"' in value for value in values) else TTL_S


def first_difference(a: bytes, b: bytes) -> int | None:
    """Return the offset of the first difference, or None if one begins with the other."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return None
    while high - low > 1:  # the first difference is in [low:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def explain_change(
    before: Request, before_body: bytes, after: Request, after_body: bytes
) -> PrefixChange | None:
    """Return why `after` could not use the cached prefix of `before`; None if it could."""
    places, same_json = _compare(before, before_body, after, after_body)
    marks_before = _find_marks(before, before_body)
    marks_after = _find_marks(after, after_body)
    moved = bool(marks_before) and (not marks_after or marks_after[-1][0] < marks_before[-1][0])
    if places is None and not moved and before.model == after.model:
        return None
    return PrefixChange(
        before=places[0] if places else None,
        after=places[1] if places else None,
        same_json=places is not None and same_json,
        model_before=before.model,
        model_after=after.model,
        breakpoints_before=[path for _, path in marks_before],
        breakpoints_after=[path for _, path in marks_after],
        bytes_before=marks_before[-1][0][2] if marks_before else 0,
        bytes_after=marks_after[-1][0][2] if marks_after else 0,
        breakpoint_moved=moved,
    )


class _Clean:
    """A part without its cache markers, as the cache compares it."""

    def __init__(self, body: bytes, part: PromptPart, end: int) -> None:
        self.body, self.part = body, part
        markers = find_markers(body, part.begin, part.end) if part.kind != "setting" else []
        self.cuts: list[Span] = sorted(marker.cut for marker in markers if marker.cut[1] <= end)
        pieces = []
        at = part.begin
        for cut_begin, cut_end in self.cuts:
            pieces.append(body[at:cut_begin])
            at = cut_end
        self.text = b"".join([*pieces, body[at:end]])

    def place(self, offset: int) -> BodyPosition:
        at = self.part.begin + offset
        for cut_begin, cut_end in self.cuts:
            if cut_begin <= at:
                at += cut_end - cut_begin
        excerpt = self.body[max(0, at - EXCERPT) : at + EXCERPT].decode(errors="replace")
        return BodyPosition(part=self.part, offset=at, excerpt=excerpt)


def _cacheable(request: Request) -> list[tuple[PromptPart, int]]:
    """Return the parts that may be cached and their ends. The last part may end early."""
    if not request.breakpoints:
        if request.provider == "anthropic":
            return []
        return [(part, part.end) for part in request.prompt]
    last = request.breakpoints[-1]
    parts = []
    for part in request.prompt:
        inside = part.begin < last <= part.end
        parts.append((part, last if inside else part.end))
        if inside:
            break
    return parts


def _find_marks(request: Request, body: bytes) -> list[tuple[tuple[int, int, int], str]]:
    """Return breakpoints as positions in the prompt, comparable between requests.

    A position is the kind of part, its index, and the bytes of the part before the breakpoint
    (without markers): `system` and a message may be lists of blocks.
    """
    order = {"tool": 0, "system": 1, "setting": 2, "message": 3}
    ends = sorted(request.breakpoints)
    marks = []
    for part in request.prompt:
        for end in ends[bisect_right(ends, part.begin) : bisect_right(ends, part.end)]:
            inside = len(_Clean(body, part, end).text)
            marks.append(((order.get(part.kind, 3), part.index, inside), part.path))
    return sorted(marks)


def _compare(
    before: Request, before_body: bytes, after: Request, after_body: bytes
) -> tuple[tuple[BodyPosition, BodyPosition] | None, bool]:
    """Return the first difference, and whether the shared parts are equal as JSON."""
    old = _cacheable(before) or [(part, part.end) for part in before.prompt]
    new = [(part, part.end) for part in after.prompt]
    shared = min(len(old), len(new))
    for n in range(shared):
        (a_part, a_end), (b_part, b_end) = old[n], new[n]
        a, b = _Clean(before_body, a_part, a_end), _Clean(after_body, b_part, b_end)
        if a.text == b.text or _is_beginning_of(a, b, n == len(old) - 1 and a_end < a_part.end):
            continue
        if _are_equal_blocks(_decode(before_body, a_part), _decode(after_body, b_part)):
            continue
        at = first_difference(a.text, b.text)
        offset = min(len(a.text), len(b.text)) if at is None else at
        return (a.place(offset), b.place(offset)), all(
            _canonical(_decode(before_body, old[i][0]))
            == _canonical(_decode(after_body, new[i][0]))
            for i in range(n, shared)
        )
    return None, True


def _is_beginning_of(a: _Clean, b: _Clean, cut: bool) -> bool:
    """Return whether `b` begins with `a`, if the prefix ends inside the message."""
    return cut and b.text.startswith(a.text)


def _decode(body: bytes, part: PromptPart) -> Any:
    try:
        return msgspec.json.decode(_Clean(body, part, part.end).text)
    except (ValueError, RecursionError):
        return None


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _are_equal_blocks(a: Any, b: Any) -> bool:
    """Compare content. A string equals one text block: a cache marker needs a block."""
    if isinstance(a, dict) and isinstance(b, dict):
        rest = {**a, "content": None} == {**b, "content": None}
        return rest and _are_equal_blocks(a.get("content"), b.get("content"))
    if isinstance(a, list) and isinstance(b, str):
        a, b = b, a
    return isinstance(a, str) and bool(b == [{"type": "text", "text": a}])
