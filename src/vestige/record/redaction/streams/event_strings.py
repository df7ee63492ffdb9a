"""Read the strings of one event, and the channel that each belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re

if TYPE_CHECKING:
    pass

DEPTH_MAX = 64
"""Levels of an event that distinguish channels. Deeper values belong to the last level."""


Path = tuple[str, ...]


class Channel(msgspec.Struct, frozen=True):
    """The position of a string in its event, in three degrees of precision.

    `exact` separates numbers and types: choices, content blocks, items.
    `begun` joins a block that begins in one type of event and continues in another (Anthropic).
    `counted` joins strings that differ only in their number: some servers number their events.
    """

    exact: tuple[Path, Path, Path]
    begun: tuple[str, Path, str]
    counted: tuple[Path, Path]


class Leaf(msgspec.Struct, frozen=True):
    """A string of an event: its channel, and where its content is."""

    channel: Channel
    start: int
    end: int


_TOKEN = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+\\?)(?P<closed>"?)'
    r"|(?P<mark>[{}\[\],:])"
    r'|(?P<scalar>[^\s{}\[\],:"]++)',
    re.DOTALL,
)
_SCALARS = re.compile(r'[^\[\]{}"]*+\]')
ANY_STRING = r'([^"\\]*+(?:\\.[^"\\]*+)*+)'
_ANY_SCALAR = r'[^\s{}\[\],:"]++'
_ANY_SCALARS = r'[^\[\]{}"]*+'


class _Container:
    """An object or array that is open while an event is read."""

    __slots__ = ("is_object", "key", "marks", "parent")

    def __init__(self, parent: _Container | None, key: str, is_object: bool) -> None:
        self.parent = parent
        self.key = key
        self.is_object = is_object
        self.marks: dict[str, str] = {}


def read_event(text: str, at: int) -> tuple[list[Leaf], list[str]]:
    """Return the strings of a JSON event that starts at `at`, and expressions for its shape.

    There is one expression for each string with the text before it, and one for the end. A
    truncated event has none."""
    found: list[tuple[_Container | None, str, int, int]] = []
    expressions: list[str] = []
    shape = ""
    done = 0
    holder: _Container | None = None
    depth = 0
    key: str | None = None
    ended = True
    while token := _TOKEN.search(text, at):
        at = token.end()
        kind, mark = token.lastgroup, token["mark"]
        if mark is not None:
            if mark in "{[":
                depth += 1
                if depth <= DEPTH_MAX:
                    holder = _Container(holder, key or "", mark == "{")
                key = None
                scalars = _SCALARS.match(text, at) if mark == "[" else None
                if scalars:  # numbers only: the bytes of a token, whose count varies
                    shape += re.escape(text[done:at]) + _ANY_SCALARS
                    at = done = scalars.end() - 1
            elif mark in "}]":
                if depth <= DEPTH_MAX:
                    holder = holder.parent if holder else None
                depth, key = max(0, depth - 1), None
            elif mark == ",":
                key = None
            continue
        if kind == "scalar":
            if holder is not None and key is not None and key.endswith("index"):
                holder.marks[key] = token[0]
            else:
                shape += re.escape(text[done : token.start()]) + _ANY_SCALAR
                done = at
            continue
        start, end = token.span("string")
        ended = bool(token["closed"])
        if holder is not None and holder.is_object and key is None and ended:
            key = token["string"]
        elif key == "type" and holder is not None:
            holder.marks[key] = token["string"]
        else:
            found.append((holder, key or "", start, end))
            expressions.append(shape + re.escape(text[done:start]) + ANY_STRING)
            shape, done = "", end
    expressions.append(shape + re.escape(text[done:]))
    leaves = [Leaf(_channel(within, key), start, end) for within, key, start, end in found]
    return leaves, expressions if ended and holder is None else []


def _channel(holder: _Container | None, key: str) -> Channel:
    names = [key]
    numbers: list[str] = []
    types: list[str] = []
    while holder is not None:
        names.append(holder.key)
        for name, value in holder.marks.items():
            (types if name == "type" else numbers).append(value)
        holder = holder.parent
    path, numbered, typed = tuple(names), tuple(numbers), tuple(types)
    family = re.split(r"[._](?=[a-z]+$)", types[-1])[0] if types else ""
    return Channel((path, numbered, typed), (key, numbered, family), (path, typed))


PLAIN = Channel((("data",), (), ()), ("data", (), ""), (("data",), ()))
"""Events that are plain text."""
