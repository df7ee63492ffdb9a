"""What travels between machines: journal lines, the long bodies that they refer to, and ends.

Lines travel as they stand in the journal. Two further kinds exist only on the way:

    body-part     a piece of a body that was too long for its line; comes before that line
    writer-end    a process over there is gone, and all that it wrote was sent

A parcel is complete in itself: a line and the body that it refers to travel together, so that
whoever receives it keeps nothing between two parcels. A body is taken only if it is what its
record says, by its hash; one that did not come is marked as lost.

    parcel = open_parcel(data, redactor)       # pure, masked, ready for a store

Elsewhere: fleet/client/ship.py makes parcels; fleet/server/receive.py takes them in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vestige.errors import ParcelTooLargeError
from vestige.limits import (
    BODY_CHUNK,
    BODY_INLINE_MAX,
    BODY_MAX,
    KIB,
    LINE_MAX,
    MIB,
    PARCEL_PART_BYTES,
    PARCEL_RECORDS_MAX,
    PARCEL_RUNS_MAX,
)
from vestige.record.codec import BadLineError, parse_line
from vestige.record.redaction.bulk_redaction import masked
from vestige.record.redaction.redactor import Redactor
from vestige.record.run_id import is_run_id
from vestige.record.types import (
    VERSION,
    AnyRecord,
    BodyInfo,
    Count,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)

WRITER = re.compile(r"[0-9a-f]{16}")
_PIECE = 256 * KIB
"""Lines that are decoded at once: long enough to be quick, short enough to let other threads in."""
_ON_THE_WAY = (b'{"kind":"body-part"', b'{"kind":"writer-end"')


class BodyPart(msgspec.Struct, tag_field="kind", tag="body-part", omit_defaults=True):
    """A piece of a long body, in order."""

    writer: str
    seq: Count
    text: str | None = None
    base64: str | None = None
    """Instead of `text`, where the piece is none, or would grow too much as JSON."""
    v: int = VERSION


class WriterEnd(msgspec.Struct, tag_field="kind", tag="writer-end", omit_defaults=True):
    """Nothing more will come from this writer."""

    writer: str
    fault: str | None = None
    """What faulthandler wrote while the process died."""
    v: int = VERSION


OnTheWay = BodyPart | WriterEnd
Identity = tuple[str, int]


@dataclass(slots=True)
class Shipment:
    """What one request brought: masked, and no longer than the limits say."""

    records: list[AnyRecord] = field(default_factory=list)
    bodies: dict[Identity, bytes] = field(default_factory=dict)
    """Long bodies, by the record that refers to them."""
    ends: list[WriterEnd] = field(default_factory=list)
    malformed: int = 0
    size_bytes: int = 0

    def read_spill(self, writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return self.bodies.get((writer, seq))


# --- sending ----------------------------------------------------------------------------------


def body_lines(writer: str, seq: int, data: bytes) -> Iterator[bytes]:
    """A long body as lines of a parcel."""
    for at in range(0, len(data), PARCEL_PART_BYTES):
        yield _part_line(writer, seq, data[at : at + PARCEL_PART_BYTES])


def _part_line(writer: str, seq: int, piece: bytes) -> bytes:
    try:
        line = msgspec.json.encode(BodyPart(writer, seq, text=piece.decode())) + b"\n"
        if len(line) <= len(piece) * 4 // 3:
            return line
    except UnicodeDecodeError:
        pass
    coded = base64.b64encode(piece).decode()
    return msgspec.json.encode(BodyPart(writer, seq, base64=coded)) + b"\n"


def end_line(writer: str, fault: str | None) -> bytes:
    return msgspec.json.encode(WriterEnd(writer, fault)) + b"\n"


# --- receiving --------------------------------------------------------------------------------

_decoder: msgspec.json.Decoder[KnownRecord | OnTheWay] = msgspec.json.Decoder(
    KnownRecord | BodyPart | WriterEnd
)
_way_decoder: msgspec.json.Decoder[OnTheWay] = msgspec.json.Decoder(OnTheWay)


def open_shipment(data: bytes, redactor: Redactor) -> Shipment:
    """Parse and mask it all. A line that holds nothing is counted, never fatal."""
    parcel = Shipment(size_bytes=len(data))
    parts: dict[Identity, list[bytes]] = {}
    for piece in _pieces(data):
        found = _parse(piece, parcel)
        if not _is_plain(found):
            found = _sorted_out(found, parcel, parts, redactor)
        parcel.records += _masked_records(found, redactor)
        if len(parcel.records) > PARCEL_RECORDS_MAX:
            raise _too_many(PARCEL_RECORDS_MAX, "records")
    runs = len({record.run_id for record in parcel.records})
    writers = len({record.writer for record in parcel.records})
    if max(runs, writers) > PARCEL_RUNS_MAX:
        raise _too_many(PARCEL_RUNS_MAX, "runs or writers")
    if parts:
        _attach(parcel, parts, redactor)
    return parcel


def _too_many(most: int, of: str) -> ParcelTooLargeError:
    return ParcelTooLargeError(f"parcel: more than {most} {of}. Send fewer lines at once.")


def _pieces(data: bytes) -> Iterator[bytes]:
    """Some lines at a time. What is longer than a line may be comes alone."""
    at = 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + _PIECE) + 1
        if not end:
            end = data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end


def _parse(piece: bytes, parcel: Shipment) -> list[Any]:
    if len(piece) <= LINE_MAX:
        try:
            found = _decoder.decode_lines(piece)
            if {record.v for record in found} <= {VERSION}:
                return found
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    kept: list[Any] = []
    for line in piece.split(b"\n"):
        if line and not line.isspace():
            try:
                kept.append(_parse_one(line))
            except (BadLineError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                parcel.malformed += 1
    return kept


def _parse_one(line: bytes) -> AnyRecord | OnTheWay:
    if line.startswith(_ON_THE_WAY) and len(line) <= LINE_MAX:
        return _way_decoder.decode(line)
    return parse_line(line)


def _is_plain(found: list[Any]) -> bool:
    """Only records, and all of them ours? Asked of all at once, as it is nearly always so."""
    return (
        {type(one) for one in found} <= _KNOWN
        and all(map(_is_writer, {one.writer for one in found}))
        and all(map(is_run_id, {one.run_id for one in found}))
    )


def _sorted_out(
    found: list[Any], parcel: Shipment, parts: dict[Identity, list[bytes]], redactor: Redactor
) -> list[Any]:
    """The records, without what is on the way only, and without what cannot be ours."""
    records = []
    for one in found:
        if not _is_writer(one.writer):
            parcel.malformed += 1
        elif isinstance(one, BodyPart):
            parts.setdefault((one.writer, one.seq), []).append(_bytes_of(one))
        elif isinstance(one, WriterEnd):
            parcel.ends.append(_masked_end(one, redactor))
        elif one.run_id is None or is_run_id(one.run_id):
            records.append(one)
        else:
            parcel.malformed += 1
    return records


_KNOWN = frozenset((SpanOpen, SpanUpdate, SpanClose, Log))


# Ids become rows that everyone looks through: they have the shape that ours have.
def _is_writer(writer: str) -> bool:
    return WRITER.fullmatch(writer) is not None


def _masked_records(records: list[AnyRecord], redactor: Redactor) -> list[AnyRecord]:
    if not any(type(record) is Unknown for record in records):
        return masked(records, redactor)  # type: ignore[arg-type,return-value]  # no Unknown among them
    return [
        _masked_unknown(record, redactor)
        if isinstance(record, Unknown)
        else masked([record], redactor)[0]
        for record in records
    ]


def _masked_unknown(record: Unknown, redactor: Redactor) -> Unknown:
    """Of a newer kind: all that is known of it is that it is JSON."""
    if not redactor.suspicious(msgspec.json.encode(record.fields)):
        return record
    fields = redactor.nested(record.fields)
    own = {"kind": record.kind, "writer": record.writer, "seq": record.seq, "run_id": record.run_id}
    return Unknown(record.kind, record.writer, record.seq, record.run_id, fields | own)


def _masked_end(end: WriterEnd, redactor: Redactor) -> WriterEnd:
    if end.fault is None:
        return end
    return WriterEnd(end.writer, redactor.text(end.fault)[:BODY_INLINE_MAX])


# --- long bodies --------------------------------------------------------------------------------


def _bytes_of(part: BodyPart) -> bytes:
    if part.text is not None:
        return part.text.encode(errors="replace")
    try:
        return base64.b64decode(part.base64 or "", validate=True)
    except (binascii.Error, ValueError):
        return b""  # then its hash is wrong, and it is lost


def _attach(parcel: Shipment, parts: dict[Identity, list[bytes]], redactor: Redactor) -> None:
    """Give each body to the record that it belongs to; nobody's are dropped."""
    for at, record in enumerate(parcel.records):
        info = getattr(record, "body_info", None)
        if info is None or info.spilled_bytes is None:
            continue
        data = b"".join(parts.pop((record.writer, record.seq), ()))
        if not data or len(data) > BODY_MAX + MIB:
            continue
        if hashlib.sha256(data).hexdigest() != info.sha256:
            continue
        data, counts = _masked_body(data, redactor)
        if counts:
            merged = {**counts, **(record.redacted or {})}  # type: ignore[union-attr]  # has a body
            parcel.records[at] = msgspec.structs.replace(record, redacted=merged)
        parcel.bodies[record.writer, record.seq] = data


def _masked_body(data: bytes, redactor: Redactor) -> tuple[bytes, dict[str, int]]:
    """In steps, as its recorder did it: most are clean, and come back as they are."""
    counts: dict[str, int] = {}
    text = data.decode(errors="surrogateescape")
    steps = (text[at : at + BODY_CHUNK] for at in range(0, len(text), BODY_CHUNK))
    cleaned = "".join(redactor.stream(steps, counts))
    return (data, {}) if cleaned == text else (cleaned.encode(errors="surrogateescape"), counts)
