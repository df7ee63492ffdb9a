"""Redact a streamed answer as a reader assembles it, not as its events split it.

    body = redact_stream(body, redactor)        # the same object if nothing had to change

A model streams its answer a few characters at a time, so no event contains a whole secret, but
the transcript does. The strings of all events are grouped into channels (the text of choice 0, the
arguments of tool call 2), each channel is joined and redacted as one text, and the result is put
back into the events: the mask where the secret began, nothing where it went on. The stored body
is still a valid stream, which assembles to exactly the redacted text.

Which strings belong together differs between providers, see `_Channel`. Understood framings: server-sent events, JSON lines, a JSON array of objects, and
the binary event streams of AWS.

Most streams contain no secret. Nearly all events of a stream have one of a few shapes, so each
shape becomes a regular expression that captures the strings, and JSON is not parsed at all.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from vestige.record.redaction.masking import MARK

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor

SHAPES_MAX = 64
"""Shapes of events that are remembered. Events of further shapes are read one by one."""

SHAPE_STRINGS_MAX = 64
"""Strings of such an event: an expression with more takes long to compile."""

DEPTH_MAX = 64
"""Levels of an event that tell channels apart. What is deeper belongs to the last of them."""

SHAPE_LENGTH_MAX = 16 * 1024
"""Bytes. A longer event (the last one of Responses) is rare, and is read by itself."""

LINE_MIN = 6
"""Bytes. Shorter lines are no events with a string in them."""

PREFIX_MIN = 16

COUNTED_MIN = 3
"""Numbers that make a count. Two may be two choices."""

REPEATED_MIN = 12
"""Characters. A longer string that is the same in each event is an id, not a part of a text."""

_STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_HEAD = 4096
_NEXT_OBJECT = re.compile(rb"\}[ \t]*\r?\n[ \t]*\{")

Path = tuple[str, ...]

Edit = tuple[int, int, str]
"""From, to, and what stands there instead."""


class _Channel(msgspec.Struct, frozen=True):
    """Where a string stands in its event, in three degrees of precision.

    `exact` separates what events number or type differently: choices, content blocks, items.
    `begun` joins a block that begins in one type of event and goes on in another, as Anthropic's do.
    `counted` joins what differs in its number only: some servers number their events.
    """

    exact: tuple[Path, Path, Path]
    begun: tuple[str, Path, str]
    counted: tuple[Path, Path]


class _Leaf(msgspec.Struct, frozen=True):
    """One string of an event: its channel, and where its content is."""

    channel: _Channel
    start: int
    end: int


# --- reading one event ------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+\\?)(?P<closed>"?)'
    r"|(?P<mark>[{}\[\],:])"
    r'|(?P<scalar>[^\s{}\[\],:"]++)',
    re.DOTALL,
)
_SCALARS = re.compile(r'[^\[\]{}"]*+\]')
_ANY_STRING = r'([^"\\]*+(?:\\.[^"\\]*+)*+)'
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


def _read_event(text: str, at: int) -> tuple[list[_Leaf], list[str]]:
    """The strings of a JSON event that starts at `at`, and expressions for events of its shape: for
    each string with what is before it, and for the end. A truncated event has none."""
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
                if scalars:  # numbers only: the bytes of a token, and how many there are varies
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
            expressions.append(shape + re.escape(text[done:start]) + _ANY_STRING)
            shape, done = "", end
    expressions.append(shape + re.escape(text[done:]))
    leaves = [_Leaf(_channel(within, key), start, end) for within, key, start, end in found]
    return leaves, expressions if ended and holder is None else []


def _channel(holder: _Container | None, key: str) -> _Channel:
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
    return _Channel((path, numbered, typed), (key, numbered, family), (path, typed))


PLAIN = _Channel((("data",), (), ()), ("data", (), ""), (("data",), ()))
"""Events that are plain text."""


# --- the events of a stream -------------------------------------------------------------------------


class _Shape:
    """Events that differ in their strings and numbers only, or only in those after some place."""

    __slots__ = (
        "_expressions",
        "at",
        "channels",
        "leading",
        "lines",
        "match",
        "prefix",
        "rows",
        "whole",
    )

    def __init__(
        self,
        channels: Sequence[_Channel],
        expressions: Sequence[bytes],
        prefix: bytes = b"",
        leading: tuple[bytes, ...] = (),
        whole: _Shape | None = None,
    ) -> None:
        """`expressions`: one for each string, with what is before it, and one for the end.
        `prefix`: what all events begin with, and `leading` the strings in it."""
        self.channels = channels
        self._expressions = expressions
        self.prefix = prefix
        self.at = len(prefix)
        self.leading = leading
        self.whole = whole or self
        self.match = re.compile(b"".join(expressions), re.DOTALL).fullmatch
        self.lines: list[int] = []
        self.rows: list[tuple[bytes, ...]] = []

    def add(self, number: int, line: bytes) -> bool:
        """Whether the line has this shape."""
        match = self.match(line, self.at) if line.startswith(self.prefix) else None
        if match is None:
            return False
        self.lines.append(number)
        self.rows.append(match.groups())
        return True

    def narrowed(self, one: bytes, other: bytes) -> _Shape | None:
        """A shape for what these two events begin with: comparing bytes is quicker than matching."""
        count = 0
        rows = self.rows[-2:]
        while count < len(self.channels) - 1 and rows[0][count] == rows[1][count]:
            count += 1
        match = self.match(one)
        at = match.start(count + 1) if match and self.channels else 0
        if at < PREFIX_MIN or one[:at] != other[:at]:
            return None
        expressions = (_ANY_STRING.encode(), *self._expressions[count + 1 :])
        return _Shape(self.channels[count:], expressions, one[:at], rows[0][:count], whole=self)


class _Source(msgspec.Struct, frozen=True):
    """The strings of one channel in events of one shape: contents, and where they are."""

    channel: _Channel
    contents: list[bytes]
    lines: list[int]
    place: int
    """The string's number in its shape, or its offset in an event that is read by itself."""


class _Piece:
    """One string of one event, as it is written, and what is to be changed in it."""

    __slots__ = ("edits", "end", "is_escaped", "raw", "start", "units")

    def __init__(self, start: int, end: int, raw: str, is_escaped: bool) -> None:
        self.start = start
        self.end = end
        self.raw = raw
        self.is_escaped = is_escaped
        self.units = _split_units(raw) if is_escaped and "\\" in raw else list(raw)
        """As each character is written."""
        self.edits: list[Edit] = []
        """Ascending, in characters. They do not overlap: a string is a part of one text."""

    def edited(self) -> str:
        parts: list[str] = []
        at = 0
        for low, high, new in self.edits:
            parts += self.units[at:low]
            parts.append(_escape(new) if self.is_escaped else new)
            at = high
        return "".join((*parts, *self.units[at:]))


class _Stream:
    """The events of a stream, one a line, and the strings in them."""

    def __init__(self, lines: list[bytes], start_of: Callable[[bytes], int]) -> None:
        self.lines = lines
        self._start_of = start_of
        self._shapes: list[_Shape] = []
        self._shape_of: dict[int, _Shape] = {}
        self._alone: dict[tuple[int, int], tuple[_Leaf, bytes]] = {}
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
                if len(shape.rows) == 2 and shape.whole is shape:
                    narrow = shape.narrowed(self.lines[shape.lines[0]], line)
                    if narrow is not None:
                        self._shapes.append(narrow)
                        return narrow
                return shape
        text = line.decode(errors="surrogateescape")
        if not text.startswith(("{", "[", '"'), start) or text.startswith("[DONE]", start):
            leaf = _Leaf(PLAIN, start, len(text.rstrip("\r")))
            self._alone[number, start] = leaf, line[start:].rstrip(b"\r")
            return None
        leaves, expressions = _read_event(text, start)
        is_short = len(line) <= SHAPE_LENGTH_MAX and len(leaves) <= SHAPE_STRINGS_MAX
        if expressions and is_short and len(self._shapes) < SHAPES_MAX:
            encoded = [each.encode(errors="surrogateescape") for each in expressions]
            shape = _Shape([leaf.channel for leaf in leaves], encoded)
            if shape.add(number, line):
                self._shapes.append(shape)
                return None  # the next one may be another: see above
        for leaf in leaves:
            content = text[leaf.start : leaf.end].encode(errors="surrogateescape")
            self._alone[number, leaf.start] = leaf, content
        return None

    def groups(self) -> list[list[_Source]]:
        """The strings that a reader joins, each group in the order of the stream."""
        groups: list[list[_Source]] = []
        rest: list[_Source] = []
        for group in _group(self._sources(), "counted"):
            if _are_counted(group):
                groups.append(group)
            else:
                rest += group
        for group in _group(rest, "begun"):
            exact = list(_group(group, "exact"))
            groups += [group] if len(exact) > 1 and _follow_each_other(group) else exact
        return groups

    def _sources(self) -> Iterator[_Source]:
        for shape in self._shapes:
            count = len(shape.rows)
            if not count:
                continue
            for place, content in enumerate(shape.leading):
                if not _is_no_part(content):
                    channel = shape.whole.channels[place]
                    yield _Source(channel, [content] * count, shape.lines, place)
            for place, channel in enumerate(shape.channels):
                contents = [row[place] for row in shape.rows]
                is_repeated = count > 1 and contents.count(contents[0]) == count
                if not (is_repeated and _is_no_part(contents[0])):
                    yield _Source(channel, contents, shape.lines, place + len(shape.leading))
        for (line, place), (leaf, content) in self._alone.items():
            if content:
                yield _Source(leaf.channel, [content], [line], place)

    def piece(self, line: int, place: int) -> _Piece:
        """The string there, as it is by now."""
        piece = self._pieces.get((line, place))
        if piece is None:
            data = self.lines[line]
            text = data.decode(errors="surrogateescape")
            alone = self._alone.get((line, place))
            if alone is not None:
                start, end, channel = alone[0].start, alone[0].end, alone[0].channel
            else:
                shape = self._find_shape(line).whole
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
        """By their numbers, the lines with another string than they had."""
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


def _group(sources: Iterable[_Source], precision: str) -> Iterable[list[_Source]]:
    together: dict[Any, list[_Source]] = {}
    for source in sources:
        together.setdefault(getattr(source.channel, precision), []).append(source)
    return together.values()


def _are_counted(group: list[_Source]) -> bool:
    """Whether numbers count events: no two strings have the same."""
    numbers = {source.channel.exact[1] for source in group}
    return COUNTED_MIN <= len(numbers) == sum(len(source.lines) for source in group)


def _follow_each_other(sources: list[_Source]) -> bool:
    """Whether each begins after another one has ended."""
    ordered = sorted(sources, key=lambda source: source.lines[0])
    return all(one.lines[-1] < other.lines[0] for one, other in pairwise(ordered))


def _is_no_part(content: bytes) -> bool:
    """Whether a string that is the same in all events adds nothing to a text."""
    return not content or len(content) >= REPEATED_MIN


# --- redacting a channel ----------------------------------------------------------------------------


def _redact_lines(
    lines: list[bytes],
    start_of: Callable[[bytes], int],
    redactor: Redactor,
    is_partial: bool = False,
) -> dict[int, bytes]:
    """By their numbers, the lines that change. `is_partial`: more follows, so that the end of each
    text may be the beginning of a secret; that end is removed."""
    stream = _Stream(lines, start_of)
    for sources in stream.groups():
        text = _read_text(sources)
        goes_on = is_partial and sources[0].channel.begun[0] not in _FACTS
        if not _is_clean(text, redactor):
            _redact_group(stream, sources, redactor, goes_on)
        elif goes_on and text:
            _remove_end(stream, sources, len(text) - redactor.safe_end(text))
    return stream.changed_lines()


_FACTS = frozenset(
    [
        "id",
        "name",
        "role",
        "model",
        "object",
        "status",
        "event",
        "call_id",
        "item_id",
        "finish_reason",
        "stop_reason",
        "system_fingerprint",
        "service_tier",
        "created_at",
        "done_reason",
        "finishReason",
        "modelVersion",
    ]
)
"""Strings that are whole in their event."""


def _read_text(sources: list[_Source]) -> str | None:
    """What the strings spell; None where they are not decoded at once: halves of characters."""
    joined = b"".join(_join(sources))
    try:
        if b"\\" in joined and sources[0].channel is not PLAIN:
            return msgspec.json.decode(b'"' + joined + b'"', type=str)
        return joined.decode()
    except ValueError:
        return None


def _is_clean(text: str | None, redactor: Redactor) -> bool:
    """Whether it is without secrets, as the scanner or else the rules see it."""
    if text is None or text.startswith("base64:"):
        return False
    return redactor.is_clean(text) or redactor.text(text) == text


def _join(sources: list[_Source]) -> Iterable[bytes]:
    """The contents in the order of the stream."""
    if len(sources) == 1:
        return sources[0].contents
    if _follow_each_other(sources):
        ordered = sorted(sources, key=lambda source: source.lines[0])
        return chain.from_iterable(source.contents for source in ordered)
    return (content for _, _, content in _in_order(sources))


def _in_order(sources: list[_Source]) -> list[tuple[int, int, bytes]]:
    """Line, place and content of each string, as the stream has them."""
    return sorted(
        (line, source.place, content)
        for source in sources
        for line, content in zip(source.lines, source.contents, strict=True)
        if content
    )


def _redact_group(
    stream: _Stream, sources: list[_Source], redactor: Redactor, goes_on: bool
) -> None:
    pieces = [stream.piece(line, place) for line, place, _ in _in_order(sources)]
    text = "".join(_unescape(unit) for piece in pieces for unit in piece.units)
    end = redactor.safe_end(text) if goes_on else len(text)
    cleaned = redactor.text(text[:end])
    edits = find_edits(text[:end], cleaned) if cleaned != text[:end] else []
    if end < len(text):
        edits.append((end, len(text), ""))
    if not edits:
        return
    ends = list(accumulate(len(piece.units) for piece in pieces))
    for low, high, new in edits:
        # The new text goes where the old one began; the rest of the old one is removed.
        first = min(bisect_right(ends, low), len(pieces) - 1)
        last = max(first, bisect_left(ends, high))
        for number in range(first, last + 1):
            piece = pieces[number]
            begin = ends[number] - len(piece.units)
            span = max(low - begin, 0), min(high, ends[number]) - begin
            piece.edits.append((*span, new if number == first else ""))


def _remove_end(stream: _Stream, sources: list[_Source], length: int) -> None:
    """Remove so many characters at the end of a text."""
    for line, place, _ in reversed(_in_order(sources)):
        if length <= 0:
            return
        piece = stream.piece(line, place)
        size = len(piece.units)
        piece.edits.append((max(0, size - length), size, ""))
        length -= size


_UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.",
    re.DOTALL,
)


def _split_units(raw: str) -> list[str]:
    return _UNIT.findall(raw)


def _unescape(unit: str) -> str:
    if len(unit) == 1:
        return unit
    try:
        character: str = json.loads(f'"{unit}"')
    except ValueError:
        return unit[-1]
    return character


def _escape(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


_MASK = re.compile(rf"""\\*["']?{MARK}\\*["']?""")


def find_edits(text: str, cleaned: str) -> list[Edit]:
    """Edits that make `cleaned` of `text`, ascending.

    All that redaction leaves between two masks stands in the text too, in the same order, so
    any places where it is found are right: with these edits the result is exactly `cleaned`.
    """
    kept, masks = _MASK.split(cleaned), _MASK.findall(cleaned)
    edits: list[Edit] = []
    at = len(kept[0])
    fits = bool(masks) and text.startswith(kept[0])
    for mask, part in zip(masks, kept[1:], strict=True):
        low = at
        at = text.find(part, low)
        if at < 0:
            fits = False
            break
        edits.append((low, at, mask))
        at += len(part)
    if fits and at < len(text):
        # The last part was found too early: it is what the text ends with.
        low, _, mask = edits[-1]
        fits = text.endswith(kept[-1]) and len(text) - len(kept[-1]) >= low
        edits[-1] = low, len(text) - len(kept[-1]), mask
    if fits:
        return [edit for edit in edits if text[edit[0] : edit[1]] != edit[2]]
    return [_only_edit(text, cleaned)]


def _only_edit(text: str, cleaned: str) -> Edit:
    """All between what both begin and end with."""
    begin = _common(text, cleaned)
    end = _common(text[begin:][::-1], cleaned[begin:][::-1])
    return begin, len(text) - end, cleaned[begin : len(cleaned) - end]


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


# --- framings ---------------------------------------------------------------------------------------


def redact_stream(
    body: bytes | bytearray, redactor: Redactor, *, is_partial: bool = False
) -> bytes | bytearray:
    """A streamed body with its assembled texts redacted; any other body as it is.
    `is_partial`: more follows; see `_redact_lines`."""
    head = bytes(memoryview(body)[:_HEAD]).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(_STREAM_STARTS):
        return _redact_events(bytes(body), redactor, is_partial)
    if head.startswith(b"{"):
        return _redact_json_lines(bytes(body), redactor, is_partial) if b"\n" in body else body
    if _is_aws_frame(body, 0):
        return _redact_aws_frames(bytes(body), redactor)
    if head.startswith(b"[") and head[1:].lstrip().startswith(b"{"):
        changed = _redact_lines([bytes(body)], _start_of_array, redactor)
        return changed.get(0, body)
    return body


def spell(body: bytes) -> list[str]:
    """The texts that the events of a stream spell in pieces, also of a part of a stream. What is no
    stream spells none."""
    head = body[:_SPELL_HEAD]
    if head.startswith(_STREAM_STARTS) or b"\ndata:" in head:
        start_of = _start_of_data
    elif _NEXT_OBJECT.search(head):
        start_of = _start_of_object
    else:
        return []
    texts = []
    for sources in _Stream(body.split(b"\n"), start_of).groups():
        if sources[0].channel.begun[0] not in _FACTS and sum(map(_count, sources)) > 1:
            joined = b"".join(_join(sources))
            try:
                texts.append(json.loads(b'"' + joined + b'"', strict=False))
            except ValueError:
                texts.append(joined.decode(errors="replace"))
    return texts


_SPELL_HEAD = 16 * 1024
"""Bytes. A part of a stream may begin within a long event."""


def _count(source: _Source) -> int:
    return len(source.contents)


def is_stream(body: bytes | bytearray | str) -> bool:
    """Whether a body begins as a stream of events does."""
    head = body[:_HEAD]
    data = head.encode(errors="replace") if isinstance(head, str) else bytes(head)
    data = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    return data.startswith(_STREAM_STARTS) or bool(
        data.startswith(b"{") and _NEXT_OBJECT.search(data)
    )


def _redact_events(body: bytes, redactor: Redactor, is_partial: bool) -> bytes:
    """Of server-sent events."""
    end = b"\n" if b"\n" in body else b"\r"
    lines = body.split(end)
    if body.count(end + b"data:") > body.count(end + end) + body.count(b"\r\n\r\n"):
        lines = _join_data_lines(lines, end)
    changed = _redact_lines(lines, _start_of_data, redactor, is_partial)
    return _join_changed(body, lines, end, changed)


def _redact_json_lines(body: bytes, redactor: Redactor, is_partial: bool) -> bytes:
    lines = body.split(b"\n")
    if sum(line.startswith(b"{") for line in lines) < 2:
        return body
    changed = _redact_lines(lines, _start_of_object, redactor, is_partial)
    return _join_changed(body, lines, b"\n", changed)


def _join_changed(body: bytes, lines: list[bytes], end: bytes, changed: dict[int, bytes]) -> bytes:
    if not changed:
        return body
    return end.join(changed.get(number, line) for number, line in enumerate(lines))


def _join_data_lines(lines: list[bytes], end: bytes) -> list[bytes]:
    """Several data lines of one event as one: JSON may be spread over them, but never a string of it.
    Data lines of text stay as they are."""
    joined: list[bytes] = []
    for line in lines:
        if line.startswith(b"data:") and joined and joined[-1].startswith(b"data:"):
            start = _start_of_data(joined[-1])
            if joined[-1].startswith((b"{", b"["), start):
                joined[-1] += end + line
                continue
        joined.append(line)
    return joined


def _start_of_data(line: bytes) -> int:
    if not line.startswith(b"data:"):
        return -1
    return 6 if line.startswith(b" ", 5) else 5


def _start_of_object(line: bytes) -> int:
    return 0 if line.startswith(b"{") else -1


def _start_of_array(line: bytes) -> int:
    return line.index(b"[")


_PRELUDE = struct.Struct(">III")
"""Length of the whole frame and of its headers, and their CRC-32. The frame ends with one of its own."""


def _is_aws_frame(body: bytes | bytearray, at: int) -> bool:
    """Whether a frame of `application/vnd.amazon.eventstream` begins there."""
    if len(body) < at + _PRELUDE.size:
        return False
    length, headers, crc = _PRELUDE.unpack_from(body, at)
    fits: bool = _PRELUDE.size + headers + 4 <= length
    return fits and zlib.crc32(bytes(body[at : at + 8])) == crc


def _redact_aws_frames(body: bytes, redactor: Redactor) -> bytes:
    """Of the frames of Bedrock, whose payload is JSON, or JSON in base64 in JSON. Frames that change
    get new lengths and sums; a truncated one at the end stays as it is."""
    frames: list[tuple[int, int, int]] = []
    payloads: list[bytes] = []
    at = 0
    while _is_aws_frame(body, at):
        length, headers, _ = _PRELUDE.unpack_from(body, at)
        begin, end = at + _PRELUDE.size + headers, at + length
        if end > len(body):
            break
        frames.append((at, begin, end))
        payloads.append(_unwrap(body[begin : end - 4]))
        at = end
    changed = _redact_lines(payloads, _start_of_object, redactor)
    if not changed:
        return body
    parts = []
    for number, (start, begin, end) in enumerate(frames):
        if number in changed:
            payload = _wrap(changed[number], body[begin : end - 4])
            parts.append(_make_frame(body[start + _PRELUDE.size : begin], payload))
        else:
            parts.append(body[start:end])
    return b"".join((*parts, body[at:]))


def _unwrap(payload: bytes) -> bytes:
    """The event in a payload of InvokeModel, `{"bytes": "<base64>"}`; of others, the payload."""
    try:
        inner = json.loads(payload)["bytes"]
        return base64.b64decode(inner, validate=True)
    except (ValueError, KeyError, TypeError):
        return payload


def _wrap(event: bytes, payload: bytes) -> bytes:
    if _unwrap(payload) == payload:
        return event
    outer = json.loads(payload)
    outer["bytes"] = base64.b64encode(event).decode()
    return json.dumps(outer, separators=(",", ":")).encode()


def _make_frame(headers: bytes, payload: bytes) -> bytes:
    length = _PRELUDE.size + len(headers) + len(payload) + 4
    sizes = struct.pack(">II", length, len(headers))
    frame = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + payload
    return frame + struct.pack(">I", zlib.crc32(frame))
