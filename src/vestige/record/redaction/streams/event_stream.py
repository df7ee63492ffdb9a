"""The events of a stream, and their strings grouped into channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.record.redaction.streams.event_strings import (
    ANY_STRING,
    PLAIN,
    Channel,
    Leaf,
    read_event,
)
from vestige.record.redaction.streams.text_edits import Edit, escape, split_units

if TYPE_CHECKING:
    pass

SHAPES_MAX = 64
"""Shapes of events that are remembered. Events of further shapes are read one by one."""

SHAPE_STRINGS_MAX = 64
"""Strings of such an event: an expression with more takes long to compile."""

SHAPE_LENGTH_MAX = 16 * 1024
"""Bytes. A longer event (the last one of Responses) is rare, and is read by itself."""

LINE_MIN = 5
"""Bytes. Shorter lines are not events with a string."""

PREFIX_MIN = 16

COUNTED_MIN = 3
"""Numbers that make a count. Two may be two choices."""

REPEATED_MIN = 12
"""Characters. A longer string that is the same in each event is an id, not a part of a text."""


class _Shape:
    """Events that differ only in their strings and numbers, or only in those after a prefix."""

    __slots__ = (
        "_expressions",
        "at",
        "channels",
        "full",
        "leading",
        "lines",
        "match",
        "prefix",
        "rows",
    )

    def __init__(
        self,
        channels: Sequence[Channel],
        expressions: Sequence[bytes],
        prefix: bytes = b"",
        leading: tuple[bytes, ...] = (),
        full: _Shape | None = None,
    ) -> None:
        """`expressions`: one for each string with the text before it, and one for the end.
        `prefix`: the common beginning of all events. `leading`: the strings in the prefix."""
        self.channels = channels
        self._expressions = expressions
        self.prefix = prefix
        self.at = len(prefix)
        self.leading = leading
        self.full = full or self
        self.match = re.compile(b"".join(expressions), re.DOTALL).fullmatch
        self.lines: list[int] = []
        self.rows: list[tuple[bytes, ...]] = []

    def add(self, number: int, line: bytes) -> bool:
        """Add a line and return True, if it has this shape."""
        match = self.match(line, self.at) if line.startswith(self.prefix) else None
        if match is None:
            return False
        self.lines.append(number)
        self.rows.append(match.groups())
        return True

    def narrowed(self, one: bytes, other: bytes) -> _Shape | None:
        """Return a shape with the common prefix of two events: comparing bytes is faster."""
        count = 0
        rows = self.rows[-2:]
        while count < len(self.channels) - 1 and rows[0][count] == rows[1][count]:
            count += 1
        match = self.match(one)
        at = match.start(count + 1) if match and self.channels else 0
        if at < PREFIX_MIN or one[:at] != other[:at]:
            return None
        expressions = (ANY_STRING.encode(), *self._expressions[count + 1 :])
        return _Shape(self.channels[count:], expressions, one[:at], rows[0][:count], full=self)


class StringSource(msgspec.Struct, frozen=True):
    """The strings of one channel in events of one shape: contents, and where they are."""

    channel: Channel
    contents: list[bytes]
    lines: list[int]
    place: int
    """The string's number in its shape, or its offset in an event that is read by itself."""


class _Piece:
    """A string of one event, as it is written, and its edits."""

    __slots__ = ("edits", "end", "is_escaped", "raw", "start", "units")

    def __init__(self, start: int, end: int, raw: str, is_escaped: bool) -> None:
        self.start = start
        self.end = end
        self.raw = raw
        self.is_escaped = is_escaped
        self.units = split_units(raw) if is_escaped and "\\" in raw else list(raw)
        """The written form of each character."""
        self.edits: list[Edit] = []
        """Ascending, in characters. They do not overlap: a string is a part of one text."""

    def edited(self) -> str:
        parts: list[str] = []
        at = 0
        for low, high, new in self.edits:
            parts += self.units[at:low]
            parts.append(escape(new) if self.is_escaped else new)
            at = high
        return "".join((*parts, *self.units[at:]))


class EventStream:
    """The events of a stream, one a line, and the strings in them."""

    def __init__(self, lines: list[bytes], start_of: Callable[[bytes], int]) -> None:
        self.lines = lines
        self._start_of = start_of
        self._shapes: list[_Shape] = []
        self._shape_of: dict[int, _Shape] = {}
        self._alone: dict[tuple[int, int], tuple[Leaf, bytes]] = {}
        self._pieces: dict[tuple[int, int], _Piece] = {}
        self._read()

    def _read(self) -> None:
        latest: _Shape | None = None
        for number, line in enumerate(self.lines):
            if len(line) < LINE_MIN:
                continue
            if latest is not None and line.startswith(latest.prefix):
                match = latest.match(line, latest.at)
                if match is not None:
                    latest.lines.append(number)
                    latest.rows.append(match.groups())
                    continue
            start = self._start_of(line)
            if start >= 0:
                latest = self._read_line(number, line, start) or latest

    def _read_line(self, number: int, line: bytes, start: int) -> _Shape | None:
        for shape in reversed(self._shapes):
            if shape.add(number, line):
                if len(shape.rows) == 2 and shape.full is shape:
                    narrow = shape.narrowed(self.lines[shape.lines[0]], line)
                    if narrow is not None:
                        self._shapes.append(narrow)
                        return narrow
                return shape
        text = line.decode(errors="surrogateescape")
        if not text.startswith(("{", "[", '"'), start) or text.startswith("[DONE]", start):
            leaf = Leaf(PLAIN, start, len(text.rstrip("\r")))
            self._alone[number, start] = leaf, line[start:].rstrip(b"\r")
            return None
        leaves, expressions = read_event(text, start)
        is_short = len(line) <= SHAPE_LENGTH_MAX and len(leaves) <= SHAPE_STRINGS_MAX
        if expressions and is_short and len(self._shapes) < SHAPES_MAX:
            encoded = [each.encode(errors="surrogateescape") for each in expressions]
            shape = _Shape([leaf.channel for leaf in leaves], encoded)
            if shape.add(number, line):
                self._shapes.append(shape)
                return None  # the next event may have another shape
        for leaf in leaves:
            content = text[leaf.start : leaf.end].encode(errors="surrogateescape")
            self._alone[number, leaf.start] = leaf, content
        return None

    def groups(self) -> list[list[StringSource]]:
        """Return groups of strings that a reader joins, each in the order of the stream."""
        groups: list[list[StringSource]] = []
        rest: list[StringSource] = []
        for group in _group(self._sources(), "counted"):
            if _are_counted(group):
                groups.append(group)
            else:
                rest += group
        for group in _group(rest, "begun"):
            exact = list(_group(group, "exact"))
            groups += [group] if len(exact) > 1 and follow_each_other(group) else exact
        return groups

    def _sources(self) -> Iterator[StringSource]:
        for shape in self._shapes:
            count = len(shape.rows)
            if not count:
                continue
            for place, content in enumerate(shape.leading):
                if not _is_no_part(content):
                    channel = shape.full.channels[place]
                    yield StringSource(channel, [content] * count, shape.lines, place)
            for place, channel in enumerate(shape.channels):
                contents = [row[place] for row in shape.rows]
                is_repeated = count > 1 and contents.count(contents[0]) == count
                if not (is_repeated and _is_no_part(contents[0])):
                    yield StringSource(channel, contents, shape.lines, place + len(shape.leading))
        for (line, place), (leaf, content) in self._alone.items():
            if content:
                yield StringSource(leaf.channel, [content], [line], place)

    def piece(self, line: int, place: int) -> _Piece:
        """Return the string at a line and place, with its edits."""
        piece = self._pieces.get((line, place))
        if piece is None:
            data = self.lines[line]
            text = data.decode(errors="surrogateescape")
            alone = self._alone.get((line, place))
            if alone is not None:
                start, end, channel = alone[0].start, alone[0].end, alone[0].channel
            else:
                shape = self._find_shape(line).full
                match, channel = shape.match(data), shape.channels[place]
                assert match is not None
                before = data[: match.start(place + 1)].decode(errors="surrogateescape")
                content = match[place + 1].decode(errors="surrogateescape")
                start, end = len(before), len(before) + len(content)
            piece = _Piece(start, end, text[start:end], channel is not PLAIN)
            self._pieces[line, place] = piece
        return piece

    def _find_shape(self, line: int) -> _Shape:
        if not self._shape_of:
            for shape in self._shapes:
                self._shape_of.update(dict.fromkeys(shape.lines, shape))
        return self._shape_of[line]

    def changed_lines(self) -> dict[int, bytes]:
        """Return the lines that have edits, by number."""
        by_line: dict[int, list[_Piece]] = {}
        for (line, _), piece in self._pieces.items():
            if piece.edits:
                by_line.setdefault(line, []).append(piece)
        found = {}
        for line, pieces in by_line.items():
            text = self.lines[line].decode(errors="surrogateescape")
            for piece in sorted(pieces, key=lambda each: each.start, reverse=True):
                text = text[: piece.start] + piece.edited() + text[piece.end :]
            found[line] = text.encode(errors="surrogateescape")
        return found


def _group(sources: Iterable[StringSource], precision: str) -> Iterable[list[StringSource]]:
    together: dict[Any, list[StringSource]] = {}
    for source in sources:
        together.setdefault(getattr(source.channel, precision), []).append(source)
    return together.values()


def _are_counted(group: list[StringSource]) -> bool:
    """Return whether the numbers count events: no two strings have the same number."""
    numbers = {source.channel.exact[1] for source in group}
    return COUNTED_MIN <= len(numbers) == sum(len(source.lines) for source in group)


def follow_each_other(sources: list[StringSource]) -> bool:
    """Return whether the line ranges of the sources do not overlap."""
    ordered = sorted(sources, key=lambda source: source.lines[0])
    return all(one.lines[-1] < other.lines[0] for one, other in pairwise(ordered))


def _is_no_part(content: bytes) -> bool:
    """Return whether a string that is equal in all events is not part of a text."""
    return not content or len(content) >= REPEATED_MIN
