"""Split a body at the boundaries of its messages, so that each message is stored once.

An LLM request resends the complete history. Split at message boundaries, the request
of the next turn has the same pieces, then a few new ones, then the same end:

    {"model":"m","messages":[{…first…} │ ,{…second…} │ ]}
    {"model":"m","messages":[{…first…} │ ,{…second…} │ ,{…third…} │ ]}

This module only chooses offsets. Pieces are slices between two offsets, so they always
rebuild the exact text; a bad offset costs space, never a byte. A comma belongs to the
message after it, and the end of the array never belongs to the last message, so the
pieces of an earlier turn stay the same.

Five rules, and everything else stays in one piece:

- a message (an element of `messages`, `input`, `contents` or `system`, or of an array
  whose first element has a role) is a piece; tiny messages are joined with the next;
- elements of other arrays of objects are grouped into pieces of a few KiB: they are
  rarely repeated, and short pieces compress badly;
- the items of a session's slices are messages too: a snapshot repeats the previous one;
- a large member (the tools, a system prompt) is a piece with its key;
- a large string in a message (a tool result, an image) is a piece: it stays the same
  if its message gets another id or loses its cache marker.

store/sqlite/bodies/body_store.py stores the pieces.
"""

from __future__ import annotations

from itertools import pairwise

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.limits import KIB, MIB, PIECE_MIN, PIECES_MAX

TEXT_MIN = 4 * PIECE_MIN
"""A shorter body is one piece: splitting it costs more rows than it can save."""

MEMBER_MIN = KIB
"""A member of this size is its own piece: the tools stay the same if the temperature changes."""

STRING_MIN = 4 * KIB
"""A string of this size in a message is its own piece. A smaller one is not worth two rows."""

ROWS_MIN = 4 * KIB
"""Other elements are grouped up to this size: zstd needs context."""

BRACKETS_MAX = 8
"""A rest of this size after a large member only closes brackets, and is not worth a piece."""

DEPTH_MAX = 6
"""Levels to search: request, messages, message, content, block, source."""

UNCOUNTED_MAX = MIB
"""A value up to this size is decoded without counting its parts first."""

PARTS_MAX = 500_000
"""Parts of a longer value. Each takes 64 bytes: `[1,1,1,…` must not take a GiB."""

MESSAGE_ARRAYS = frozenset({"messages", "input", "contents", "system"})

_OF_MESSAGES = re.compile(f'"(?:role|{"|".join(sorted(MESSAGE_ARRAYS))})"'.encode())
"""A text without one of these, and too short for a large member, is not split."""

SLICES = "slices"
"""The key of a session's snapshot: objects, each with a growing list of `items`."""

WHOLE_ARRAYS = frozenset({"tools", "functions"})
"""Always one piece: they rarely change, and compress well together."""

_BLANKS = b" \t\n\r"
_SPACE = rb"[ \t\n\r]*+"
_TO_ELEMENT = re.compile(_SPACE + rb",?" + _SPACE)
_TO_MEMBER = re.compile(
    _SPACE + rb",?" + _SPACE + rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"' + _SPACE + rb":" + _SPACE, re.DOTALL
)
_TO_END = re.compile(_SPACE + rb"\}")

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

Part = tuple[str, int, int]
"""The key (empty in an array), and the begin and end of the value."""


def split(text: bytes) -> list[bytes]:
    """Return the pieces of a body, in order. Joined, they are always `text`."""
    cuts = find_cuts(text)
    if not cuts or len(cuts) >= PIECES_MAX:
        return [text]
    return [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]


def find_cuts(text: bytes) -> list[int]:
    """Return ascending offsets at which to split; empty if the text is short or not JSON."""
    if len(text) < TEXT_MIN:
        return []
    begin = len(text) - len(text.lstrip(_BLANKS))
    end = len(text.rstrip(_BLANKS))
    if text[begin : begin + 1] not in (b"{", b"["):
        return []
    if len(text) < MEMBER_MIN and _OF_MESSAGES.search(text) is None:
        return []
    cutter = _Cutter(text)
    try:
        cutter.cut_value("", begin, end, 0)
    except (ValueError, RecursionError):  # from msgspec: not JSON, not UTF-8, too deep
        return []
    return cutter.cuts


class _Cutter:
    """Walk a text from left to right and collect the offsets at which to split."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.cuts: list[int] = []
        self.last = 0

    def cut(self, at: int) -> None:
        if self.last < at < len(self.text):
            self.cuts.append(at)
            self.last = at

    def cut_value(self, key: str, begin: int, end: int, depth: int) -> None:
        """Split a request, or the object around it."""
        first = self.text[begin]
        if first == ord("{") and depth < DEPTH_MAX:
            self.cut_members(begin, end, depth)
        elif first == ord("[") and key == SLICES and depth == 1:
            self.cut_slices(begin, end)
        elif first == ord("[") and key not in WHOLE_ARRAYS:
            self.cut_elements(key, begin, end)

    def cut_members(self, begin: int, end: int, depth: int) -> None:
        """Split members that may contain messages; other large members are pieces."""
        before = begin
        for key, value_begin, value_end in self.find_members(begin, end):
            large = value_end - value_begin >= MEMBER_MIN
            if large:
                # Even after a short member: if that changes, the tools must stay the same.
                self.cut(before)
            if large or key in MESSAGE_ARRAYS:
                self.cut_value(key, value_begin, value_end, depth + 1)
            if large and self.last < value_begin and end - value_end > BRACKETS_MAX:
                self.cut(value_end)
            before = value_end

    def cut_elements(self, key: str, begin: int, end: int) -> None:
        """Cut an array of objects after each message, or after some rows."""
        parts = self.find_elements(begin, end)
        if not parts or self.text[parts[0][1]] != ord("{"):
            return
        _, first_begin, first_end = parts[0]
        messages = key in MESSAGE_ARRAYS or self.text.find(b'"role"', first_begin, first_end) >= 0
        if not messages and end - begin < ROWS_MIN:
            return
        if first_begin - self.last >= PIECE_MIN:
            self.cut(first_begin)
        piece_min = PIECE_MIN if messages else ROWS_MIN
        piece_begin = first_begin
        for part in parts:
            _, part_begin, part_end = part
            if messages and part_end - part_begin >= STRING_MIN:
                self.cut_strings(part, 0)
            if part_end - piece_begin >= piece_min:
                self.cut(part_end)
                piece_begin = part_end
        # Even after a short element: the text after the array must not be part of its piece.
        self.cut(parts[-1][2])

    def cut_slices(self, begin: int, end: int) -> None:
        """Cut around each item of each slice, and between slices."""
        for _, part_begin, part_end in self.find_elements(begin, end):
            if self.text[part_begin] != ord("{"):
                return
            if part_begin - self.last >= PIECE_MIN:
                self.cut(part_begin)
            for key, value_begin, value_end in self.find_members(part_begin, part_end):
                if key == "items" and self.text[value_begin] == ord("["):
                    self.cut_elements("messages", value_begin, value_end)

    def cut_strings(self, part: Part, depth: int) -> None:
        """Cut around the large strings inside a message."""
        _, begin, end = part
        if end - begin < STRING_MIN or depth > DEPTH_MAX:
            return
        first = self.text[begin]
        if first == ord('"'):
            self.cut(begin)
            self.cut(end)
        elif first in b"{[":
            find = self.find_members if first == ord("{") else self.find_elements
            for inner in find(begin, end):
                self.cut_strings(inner, depth + 1)

    def find_elements(self, begin: int, end: int) -> list[Part]:
        """Return the elements of the array at [begin:end]."""
        text = self.text
        parts = []
        at = begin + 1
        for raw in _ARRAY.decode(self.view(begin, end) or b"[]"):
            # Fast paths for the two usual styles: this runs for every message.
            if text.startswith(b",{", at):
                at += 1
            elif text.startswith(b", {", at):
                at += 2
            else:
                at = _skip(_TO_ELEMENT, text, at)
            value_end = at + len(raw)
            parts.append(("", at, value_end))
            at = value_end
        return parts

    def find_members(self, begin: int, end: int) -> list[Part]:
        """Return the members of the object at [begin:end]; empty if a key is repeated.

        The decoder returns one value of a repeated key, so the values do not match the
        text. Such an object stays in one piece.
        """
        parts = []
        at = begin + 1
        for key, raw in _OBJECT.decode(self.view(begin, end) or b"{}").items():
            at = _skip(_TO_MEMBER, self.text, at)
            if not self.text.startswith(raw, at):
                return []
            parts.append((key, at, at + len(raw)))
            at += len(raw)
        return parts if _TO_END.match(self.text, at) else []

    def view(self, begin: int, end: int) -> memoryview | None:
        """Return the bytes to decode, without a copy; None if they have too many parts."""
        long = end - begin > UNCOUNTED_MAX
        if long and self.text.count(b",", begin, end) > PARTS_MAX:
            return None
        return memoryview(self.text)[begin:end]


def _skip(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Return the end of the match at `at`, or `at` if there is none."""
    match = pattern.match(text, at)
    return match.end() if match else at
