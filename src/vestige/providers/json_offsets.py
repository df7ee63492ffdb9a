"""Byte offsets of the parts of a request body.

JSON decoders forget offsets. msgspec.Raw keeps the bytes of a value, and between two values there
is only a comma, a key and blanks: so a walk over the text, one value after the other, is exact.
Where it is not (a repeated key), there are no offsets, never wrong ones.

Elsewhere: providers/message_split.py walks in the same way to cut bodies for the store.
"""

from __future__ import annotations

from typing import NamedTuple

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.providers.chat_types import PromptPart

Span = tuple[int, int]

UNKNOWN: Span = (0, 0)

MARKER = "cache_control"

MARKED = frozenset({"content", "function"})
"""Members of a message or tool that may hold marked blocks. Never arguments or schemas: there,
`cache_control` is the program's data."""

DEPTH_MAX = 8
"""message, content, block, content of a tool result, block."""

_SPACE = rb"[ \t\n\r]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_ELEMENT = re.compile(_SPACE + rb",?" + _SPACE)
_TO_VALUE = re.compile(_STRING + _SPACE + rb":" + _SPACE, re.DOTALL)
_TO_END = re.compile(_SPACE + rb"\}")
_BLANKS = b" \t\n\r"

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Member(NamedTuple):
    """A member of an object: its key begins at `key_begin`, its value is [begin:end]."""

    key: str
    key_begin: int
    begin: int
    end: int


class Marker(NamedTuple):
    """A `cache_control`."""

    cut: Span
    """The bytes to remove, so that the object is as it would be without the marker."""
    value: Span
    end: int
    """The end of the marked object: the breakpoint."""


class Layout:
    """The members of one request body."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        begin = len(body) - len(body.lstrip(_BLANKS))
        self.root = (begin, len(body.rstrip(_BLANKS)))
        self.members = {m.key: (m.begin, m.end) for m in find_members(body, *self.root)}

    def span(self, *path: str) -> Span:
        """Return the offsets of the member."""
        span = self.members.get(path[0], UNKNOWN)
        for key in path[1:]:
            inner = {m.key: (m.begin, m.end) for m in find_members(self.body, *span)}
            span = inner.get(key, UNKNOWN)
        return span

    def items(self, key: str, count: int) -> list[Span]:
        """Return the offsets of a member's elements; UNKNOWN if there are not `count`."""
        spans = find_elements(self.body, *self.span(key))
        return spans if len(spans) == count else [UNKNOWN] * count

    def marked(self) -> bool:
        """Return whether `cache_control` is set for the request, beside `messages`."""
        begin, end = self.members.get(MARKER, UNKNOWN)
        return end > begin and self.body[begin:end] != b"null"

    def part(
        self, kind: str, path: str, role: str | None, span: Span, index: int = 0
    ) -> PromptPart:
        begin, end = span
        return PromptPart(kind=kind, path=path, index=index, role=role, begin=begin, end=end)


def find_breakpoints(body: bytes, prompt: list[PromptPart]) -> list[int]:
    """Return the ends of the cacheable prefixes, in the order of the prompt."""
    if MARKER.encode() not in body:
        return []
    return [
        end
        for part in prompt
        for end in sorted({marker.end for marker in find_markers(body, part.begin, part.end)})
    ]


def find_markers(body: bytes, begin: int, end: int, depth: int = 0) -> list[Marker]:
    """Find the `cache_control` members of a tool, a message or their blocks."""
    if depth > DEPTH_MAX or body.find(MARKER.encode(), begin, end) < 0:
        return []
    if body[begin : begin + 1] == b"[":
        spans = find_elements(body, begin, end)
        return [m for span in spans for m in find_markers(body, *span, depth + 1)]
    found = []
    members = find_members(body, begin, end)
    for number, member in enumerate(members):
        if member.key in MARKED:
            found += find_markers(body, member.begin, member.end, depth + 1)
        elif member.key == MARKER and body[member.begin : member.end] != b"null":
            if number:
                cut = (members[number - 1].end, member.end)
            else:
                cut = (member.key_begin, members[1].key_begin if len(members) > 1 else member.end)
            found.append(Marker(cut, (member.begin, member.end), end))
    return found


def find_elements(text: bytes, begin: int, end: int) -> list[Span]:
    """Return the offsets of the elements of the array at [begin:end]; empty for other values."""
    if text[begin : begin + 1] != b"[":
        return []
    try:
        raws = _ARRAY.decode(memoryview(text)[begin:end])
    except (ValueError, RecursionError):  # from msgspec: not JSON, not UTF-8, too deep
        return []
    spans = []
    at = begin + 1
    for raw in raws:
        at = _skip(_TO_ELEMENT, text, at)
        spans.append((at, at + len(raw)))
        at += len(raw)
    return spans


def find_members(text: bytes, begin: int, end: int) -> list[Member]:
    """Return the members of the object at [begin:end]; empty if a key is repeated."""
    if text[begin : begin + 1] != b"{":
        return []
    try:
        raws = _OBJECT.decode(memoryview(text)[begin:end])
    except (ValueError, RecursionError):  # from msgspec: not JSON, not UTF-8, too deep
        return []
    members = []
    at = begin + 1
    for key, raw in raws.items():
        key_begin = _skip(_TO_ELEMENT, text, at)
        at = _skip(_TO_VALUE, text, key_begin)
        # The decoder returns one value of a repeated key, so the text has another value here.
        if not text.startswith(raw, at):
            return []
        members.append(Member(key, key_begin, at, at + len(raw)))
        at += len(raw)
    return members if _TO_END.match(text, at) else []


def _skip(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
