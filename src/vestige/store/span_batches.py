"""Batches of complete spans: both ends of each span in one value.

Files of other tools mostly have both ends of a span next to each other, and so do the records
that are made from them. One value per span, with the run and writer once per batch, is half the
bytes to send and half the work to ingest. The sending process can also pack the tiny bodies
(store/sqlite/bodies/packed_bodies.py), so that the writer of the store does not have to.

    for part, batch in iter_batches(records):       # all records, in their order
        batch                                       # None: `part` is not complete spans

Elsewhere: sent by transfer/import_worker.py, stored by store/sqlite/ingest/batch_ingest.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from vestige.record.types import Attributes, KnownRecord, SpanClose, SpanOpen
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, NewPack, pack_texts
from vestige.store.sqlite.ingest.rows import OWN_TYPES

BatchBody = str | tuple[int, int] | None
"""The text of a body; or its number in the batch's packs, and its size."""


class CompleteSpan(msgspec.Struct, array_like=True, gc=False):
    """A span-open record and its span-close, which has the next seq."""

    seq: int
    time_ns: int
    span_id: str
    parent_id: str | None
    component: str
    type: str
    name: str
    attributes: Attributes
    """Merged from both records. A value of the span-close wins."""
    status: str
    duration_ns: int
    input: BatchBody
    output: BatchBody


_encode = msgspec.json.Encoder().encode
decode_spans = msgspec.json.Decoder(list[CompleteSpan]).decode


class SpanBatch(NamedTuple):
    """Spans of one run by one writer. Their seqs are consecutive, two for each span."""

    writer: str
    run_id: str
    spans: Sequence[CompleteSpan]
    packs: Sequence[NewPack]


class SpanBatchBuilder:
    """Collect the spans of a batch.

    The tiny texts are packed last (`pack_bodies`), so that the redactor can scan them before.
    """

    def __init__(self, first: KnownRecord) -> None:
        self.writer = first.writer
        self.run_id = first.run_id
        self.spans: list[CompleteSpan] = []
        self._next_seq = first.seq
        self._numbers: dict[str, int] = {}
        self._times: list[int] = []

    def encode(self) -> tuple[bytes, bytes]:
        """Return the spans for `decode_spans`, and every other text, for the redactor to scan."""
        return _encode(self.spans), _encode((self.run_id, list(self._numbers)))

    def pack_bodies(self) -> list[NewPack]:
        return pack_texts([text.encode() for text in self._numbers], self._times)

    def add(self, opening: SpanOpen, close: SpanClose) -> bool:
        """Add a span. Return False if it is not the next one of this run and writer."""
        if (
            opening.seq != self._next_seq
            or opening.writer != self.writer
            or opening.run_id != self.run_id
        ):
            return False
        self._next_seq += 2
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
                self._add_body(opening.body, opening.time_ns),
                self._add_body(close.body, close.time_ns),
            )
        )
        return True

    def _add_body(self, text: str | None, time_ns: int) -> BatchBody:
        if text is None:
            return None
        # A lone surrogate passes here and raises when the text is encoded to be stored.
        size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if size >= TINY_MAX:
            return text
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._times)
            self._times.append(time_ns)
        return number, size


def iter_batches(
    records: Sequence[KnownRecord],
) -> Iterator[tuple[Sequence[KnownRecord], SpanBatchBuilder | None]]:
    """Yield all records in their order, with a batch if they are complete spans."""
    at = 0
    while at < len(records):
        begin = at
        batch = SpanBatchBuilder(records[at])
        while (pair := _find_complete_span(records, at)) and batch.add(*pair):
            at += 2
        if batch.spans:
            yield records[begin:at], batch
            continue
        while at < len(records) and not _find_complete_span(records, at):
            at += 1
        yield records[begin:at], None


def _find_complete_span(
    records: Sequence[KnownRecord], at: int
) -> tuple[SpanOpen, SpanClose] | None:
    """Return both ends of a span, if they are adjacent and a CompleteSpan has all their fields."""
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
