"""Redact the text of a channel, and put the result back into its events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.record.redaction.streams.event_stream import (
    EventStream,
    StringSource,
    follow_each_other,
)
from vestige.record.redaction.streams.event_strings import PLAIN
from vestige.record.redaction.streams.text_edits import find_edits, unescape

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor


def redact_lines(
    lines: list[bytes],
    start_of: Callable[[bytes], int],
    redactor: Redactor,
    is_partial: bool = False,
) -> dict[int, bytes]:
    """Return the changed lines by number.

    `is_partial`: more follows, so the end of a text may begin a secret, and is removed."""
    stream = EventStream(lines, start_of)
    for sources in stream.groups():
        text = _read_text(sources)
        goes_on = is_partial and sources[0].channel.begun[0] not in FACTS
        if not _is_clean(text, redactor):
            _redact_group(stream, sources, redactor, goes_on)
        elif goes_on and text:
            _remove_end(stream, sources, len(text) - redactor.safe_end(text))
    return stream.changed_lines()


FACTS = frozenset(
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
"""Strings that are complete in their event."""


def _read_text(sources: list[StringSource]) -> str | None:
    """Return the text of the strings, or None if it cannot be decoded (half characters)."""
    joined = b"".join(join(sources))
    try:
        if b"\\" in joined and sources[0].channel is not PLAIN:
            return msgspec.json.decode(b'"' + joined + b'"', type=str)
        return joined.decode()
    except ValueError:
        return None


def _is_clean(text: str | None, redactor: Redactor) -> bool:
    """Return whether a text has no secrets, by the scanner or else by the rules."""
    if text is None or text.startswith("base64:"):
        return False
    return redactor.is_clean(text) or redactor.text(text) == text


def join(sources: list[StringSource]) -> Iterable[bytes]:
    """Return the contents in the order of the stream."""
    if len(sources) == 1:
        return sources[0].contents
    if follow_each_other(sources):
        ordered = sorted(sources, key=lambda source: source.lines[0])
        return chain.from_iterable(source.contents for source in ordered)
    return (content for _, _, content in _in_order(sources))


def _in_order(sources: list[StringSource]) -> list[tuple[int, int, bytes]]:
    """Return line, place and content of each string, in the order of the stream."""
    return sorted(
        (line, source.place, content)
        for source in sources
        for line, content in zip(source.lines, source.contents, strict=True)
        if content
    )


def _redact_group(
    stream: EventStream, sources: list[StringSource], redactor: Redactor, goes_on: bool
) -> None:
    pieces = [stream.piece(line, place) for line, place, _ in _in_order(sources)]
    text = "".join(unescape(unit) for piece in pieces for unit in piece.units)
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


def _remove_end(stream: EventStream, sources: list[StringSource], length: int) -> None:
    """Remove `length` characters at the end of a text."""
    for line, place, _ in reversed(_in_order(sources)):
        if length <= 0:
            return
        piece = stream.piece(line, place)
        size = len(piece.units)
        piece.edits.append((max(0, size - length), size, ""))
        length -= size
