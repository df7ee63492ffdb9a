"""Spans that are told from beginning to end at once, many of one run: a block.

A file of another tool mostly has both ends of a span next to each other, and so have the records that
are made of it. Told as one, with what is the same for all said once, they are half the bytes to send and
half the work to take in; and their tiny bodies can be put on sheets (store/sqlite/bodies/packed_bodies.py) by whoever has the time.

    for some, spans in find_blocks(records):        # all of them, in their order
        spans                                       # None: `some` are no whole spans

Elsewhere: who sends them, transfer/import_worker.py; who takes them in, store/sqlite/ingest/batch_ingest.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from vestige.record.types import Attributes, KnownRecord, SpanClose, SpanOpen
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, NewSheet, make_sheets
from vestige.store.sqlite.ingest.rows import OWN_TYPES

Held = str | tuple[int, int] | None
"""A body: its text; or the number of one on the block's sheets, and its size."""


class CompleteSpan(msgspec.Struct, array_like=True, gc=False):
    """An opening and the close that follows it, which has the next number."""

    seq: int
    time_ns: int
    span_id: str
    parent_id: str | None
    component: str
    type: str
    name: str
    attributes: Attributes
    """What both say; the close has the last word."""
    status: str
    duration_ns: int
    input: Held
    output: Held


_encode = msgspec.json.Encoder().encode
decode_spans = msgspec.json.Decoder(list[CompleteSpan]).decode


class SpanBatch(NamedTuple):
    """Spans of one run by one writer. Their numbers count up without a gap, two for each."""

    writer: str
    run_id: str
    spans: Sequence[CompleteSpan]
    sheets: Sequence[NewSheet]


class SpanBatchBuilder:
    """Spans of a block to be: their tiny texts are not on sheets yet, as somebody may want to look at them."""

    def __init__(self, first: KnownRecord) -> None:
        self.writer = first.writer
        self.run_id = first.run_id
        self.spans: list[CompleteSpan] = []
        self._next = first.seq
        self._numbers: dict[str, int] = {}
        self._times: list[int] = []

    def encode(self) -> tuple[bytes, bytes]:
        """The spans, for `decode_spans`; and all that they leave out, so that it can be looked at."""
        return _encode(self.spans), _encode((self.run_id, list(self._numbers)))

    def make_sheets(self) -> list[NewSheet]:
        return make_sheets([text.encode() for text in self._numbers], self._times)

    def add(self, opening: SpanOpen, close: SpanClose) -> bool:
        """False: it is not of this run and writer, or not the next one."""
        if (
            opening.seq != self._next
            or opening.writer != self.writer
            or opening.run_id != self.run_id
        ):
            return False
        self._next += 2
        attributes = opening.attributes
        if close.attributes:
            attributes = {**attributes, **close.attributes}
        self.spans.append(
            CompleteSpan(
                opening.seq,
                opening.time_ns,
                opening.span_id,
                opening.parent_id,
                opening.component,
                opening.type,
                opening.name,
                attributes,
                close.status,
                close.duration_ns,
                self._hold(opening.body, opening.time_ns),
                self._hold(close.body, close.time_ns),
            )
        )
        return True

    def _hold(self, text: str | None, time_ns: int) -> Held:
        if text is None:
            return None
        # Half a character is for the one who encodes it to find.
        size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if size >= TINY_MAX:
            return text
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._times)
            self._times.append(time_ns)
        return number, size


def find_blocks(
    records: Sequence[KnownRecord],
) -> Iterator[tuple[Sequence[KnownRecord], SpanBatchBuilder | None]]:
    """All records in their order, some at a time; with the spans that they are, if they are whole ones."""
    at = 0
    while at < len(records):
        begin = at
        found = SpanBatchBuilder(records[at])
        while (pair := _find_whole(records, at)) and found.add(*pair):
            at += 2
        if found.spans:
            yield records[begin:at], found
            continue
        while at < len(records) and not _find_whole(records, at):
            at += 1
        yield records[begin:at], None


def _find_whole(records: Sequence[KnownRecord], at: int) -> tuple[SpanOpen, SpanClose] | None:
    """The two ends of one span, if they are here and say nothing that only a record can say."""
    if at + 1 >= len(records):
        return None
    opening, close = records[at], records[at + 1]
    if (
        isinstance(opening, SpanOpen)
        and isinstance(close, SpanClose)
        and close.span_id == opening.span_id
        and close.seq == opening.seq + 1
        and close.time_ns == opening.time_ns + close.duration_ns
        and close.writer == opening.writer
        and close.run_id == opening.run_id
        and opening.type not in OWN_TYPES
        and not opening.links
        and opening.conversation_id is None
        and opening.body_info is None
        and opening.redacted is None
        and opening.extra is None
        and close.body_info is None
        and close.redacted is None
        and close.extra is None
    ):
        return opening, close
    return None
