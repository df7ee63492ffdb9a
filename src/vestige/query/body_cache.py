"""A bounded cache of a run's bodies as text, with read-ahead.

A check reads the input or output of all spans of a type, in order. So the first body is read
alone, and each later read fetches twice as many as the previous one: a single read stays cheap,
and twenty thousand bodies take about a hundred statements instead of forty thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from vestige.errors import VestigeError
from vestige.limits import MIB
from vestige.record.redaction.output_redaction import redact_body
from vestige.record.run import BodyRef, SpanInfo

BODY_READ_MAX = 8 * MIB
"""Bytes read of one body."""

CACHED_BYTES_MAX = 64 * MIB
"""Bytes of all cached bodies; the cache is emptied when it is full."""

AHEAD_MAX = 512
"""Bodies read in one statement, enough to make its overhead negligible."""

AHEAD_BYTES_MAX = 4 * MIB
"""Bytes of bodies read in one statement. A longer body is read alone."""

ReadBody = Callable[[int, int, int | None], bytes]
ReadBodies = Callable[[Sequence[int]], Iterable[tuple[int, bytes]]]
Side = Literal["input", "output"]


class BodyCache:
    """Texts by span; None for a span without a body, or whose body is missing."""

    def __init__(
        self, spans: Sequence[SpanInfo], read_body: ReadBody, read_bodies: ReadBodies | None
    ) -> None:
        self._spans = spans
        self.read_body = read_body
        self._read_bodies = read_bodies
        self._texts: dict[int, str] = {}
        self._cached_bytes = 0
        self._missing: set[int] = set()
        self._queues: dict[tuple[str, Side], _Queue] = {}

    def text(self, span: SpanInfo, side: Side) -> str | None:
        ref = span.input if side == "input" else span.output
        if ref is None or ref.id is None or ref.id in self._missing:
            return None
        known = self._texts.get(ref.id)
        if known is not None:
            return known
        self._add(self._read(span, side, ref.id, ref.size_bytes))
        text = self._texts.get(ref.id)
        if text is None:
            self._missing.add(ref.id)  # deleted by retention, or damaged
        return text

    def _read(self, span: SpanInfo, side: Side, body_id: int, size: int) -> list[tuple[int, bytes]]:
        """Read this body, if it exists, and some that are likely to be read next."""
        if self._read_bodies is not None and size <= AHEAD_BYTES_MAX:
            body_ids = self._queue(span.type, side).next_ids(body_id, self._texts)
            return list(self._read_bodies(body_ids))
        raw = self.raw(body_id)
        return [] if raw is None else [(body_id, raw)]

    def raw(self, body_id: int) -> bytes | None:
        """Return the bytes; None if the body is missing."""
        try:
            return self.read_body(body_id, 0, BODY_READ_MAX)
        except VestigeError:
            return None

    def is_gone(self, body_id: int) -> bool:
        if body_id in self._texts:
            return False
        try:
            self.read_body(body_id, 0, 1)  # one byte is enough to see that it exists
        except VestigeError:
            return True
        return False

    def _add(self, bodies: Sequence[tuple[int, bytes]]) -> None:
        size = sum(len(raw) for _, raw in bodies)
        if self._cached_bytes + size > CACHED_BYTES_MAX:
            self._texts.clear()
            self._cached_bytes = 0
        for body_id, raw in bodies:
            # Redact before a view truncates the text or joins the parts of a stream.
            self._texts[body_id] = redact_body(raw).decode(errors="replace")
        self._cached_bytes += size

    def _queue(self, type: str, side: Side) -> _Queue:
        queue = self._queues.get((type, side))
        if queue is None:
            spans = (span for span in self._spans if span.type == type)
            refs = (span.input if side == "input" else span.output for span in spans)
            queue = self._queues[type, side] = _Queue(refs)
        return queue


class _Queue:
    """The distinct bodies of one side of the spans of one type, in order."""

    def __init__(self, refs: Iterable[BodyRef | None]) -> None:
        sizes = {ref.id: ref.size_bytes for ref in refs if ref is not None and ref.id is not None}
        self._order = list(sizes.items())
        self._index_of = {body_id: index for index, body_id in enumerate(sizes)}
        self._count = 1

    def next_ids(self, first: int, cached: dict[int, str]) -> list[int]:
        """Return `first` and uncached bodies after it; each call reaches twice as far."""
        body_ids: list[int] = []
        total = 0
        at = self._index_of.get(first)
        if at is None:
            return [first]
        for body_id, size_bytes in self._order[at : at + self._count]:
            total += size_bytes
            if total > AHEAD_BYTES_MAX:
                break
            if body_id not in cached:
                body_ids.append(body_id)
        self._count = min(self._count * 2, AHEAD_MAX)
        return body_ids
