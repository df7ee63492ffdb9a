"""The bodies of a run as text: each read once if it can be, held within a bound, read ahead.

A check goes through the spans of a type in order and asks each for its input, or its output. So
the first one asked for is read alone, and then as many at once as were read before: a single
question stays cheap, and twenty thousand take some hundred statements instead of forty thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from vestige.errors import VestigeError
from vestige.limits import MIB
from vestige.record.redaction.output_redaction import redact_body
from vestige.record.run import BodyRef, SpanInfo

BODY_READ_MAX = 8 * MIB
"""Of one body. A check that needs more than this of one has lost its thread."""

BODIES_HELD_MAX = 64 * MIB
"""Of all bodies that are held at once; older ones are read again when needed."""

AHEAD_MAX = 512
"""Bodies read at once: then a statement costs little beside them."""

AHEAD_BYTES_MAX = 4 * MIB
"""Of the bodies read at once. A longer body is read alone."""

ReadBody = Callable[[int, int, int | None], bytes]
ReadBodies = Callable[[Sequence[int]], Iterable[tuple[int, bytes]]]
Side = Literal["input", "output"]


class BodyCache:
    """Texts by span. None where there is none, or it is gone: a check works with what there is."""

    def __init__(
        self, spans: Sequence[SpanInfo], read_body: ReadBody, read_bodies: ReadBodies | None
    ) -> None:
        self._spans = spans
        self.read_body = read_body
        self._read_bodies = read_bodies
        self._texts: dict[int, str] = {}
        self._held = 0
        self._gone: set[int] = set()
        self._queues: dict[tuple[str, Side], _Queue] = {}

    def text(self, span: SpanInfo, side: Side) -> str | None:
        ref = span.input if side == "input" else span.output
        if ref is None or ref.id is None or ref.id in self._gone:
            return None
        known = self._texts.get(ref.id)
        if known is not None:
            return known
        self._hold(self._read(span, side, ref.id, ref.size_bytes))
        text = self._texts.get(ref.id)
        if text is None:
            self._gone.add(ref.id)  # evicted, or damaged
        return text

    def _read(self, span: SpanInfo, side: Side, body_id: int, size: int) -> list[tuple[int, bytes]]:
        """This body, if it is there, and some that will be asked for next."""
        if self._read_bodies is not None and size <= AHEAD_BYTES_MAX:
            wanted = self._queue(span.type, side).take(body_id, self._texts)
            return list(self._read_bodies(wanted))
        raw = self.raw(body_id)
        return [] if raw is None else [(body_id, raw)]

    def raw(self, body_id: int) -> bytes | None:
        """The bytes; None where they are gone."""
        try:
            return self.read_body(body_id, 0, BODY_READ_MAX)
        except VestigeError:
            return None

    def is_gone(self, body_id: int) -> bool:
        if body_id in self._texts:
            return False
        try:
            self.read_body(body_id, 0, 1)  # one byte: whether it is there, not what it is
        except VestigeError:
            return True
        return False

    def _hold(self, bodies: Sequence[tuple[int, bytes]]) -> None:
        size = sum(len(raw) for _, raw in bodies)
        if self._held + size > BODIES_HELD_MAX:
            self._texts.clear()
            self._held = 0
        for body_id, raw in bodies:
            # Before a view truncates it, or shows assembled what a stream has in pieces.
            self._texts[body_id] = redact_body(raw).decode(errors="replace")
        self._held += size

    def _queue(self, type: str, side: Side) -> _Queue:
        known = self._queues.get((type, side))
        if known is None:
            spans = (span for span in self._spans if span.type == type)
            refs = (span.input if side == "input" else span.output for span in spans)
            known = self._queues[type, side] = _Queue(refs)
        return known


class _Queue:
    """The bodies of one side of the spans of one type, in order, each once."""

    def __init__(self, refs: Iterable[BodyRef | None]) -> None:
        sizes = {ref.id: ref.size_bytes for ref in refs if ref is not None and ref.id is not None}
        self._order = list(sizes.items())
        self._places = {body_id: place for place, body_id in enumerate(sizes)}
        self._count = 1

    def take(self, first: int, held: dict[int, str]) -> list[int]:
        """This one, and those after it that are not held; twice as many as the last time."""
        taken: list[int] = []
        total = 0
        at = self._places.get(first)
        if at is None:
            return [first]
        for body_id, size_bytes in self._order[at : at + self._count]:
            total += size_bytes
            if total > AHEAD_BYTES_MAX:
                break
            if body_id not in held:
                taken.append(body_id)
        self._count = min(self._count * 2, AHEAD_MAX)
        return taken
