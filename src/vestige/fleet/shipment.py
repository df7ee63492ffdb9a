"""The format that one machine sends to another: journal lines, long bodies, ends of writers.

Lines are sent as they are in the journal. Two further kinds exist only in a shipment:

    body-part     a piece of a body that was too long for its line; precedes that line
    writer-end    a process has ended, and everything that it wrote was sent

A shipment is self-contained: a line and its body are sent together, so a receiver needs no state
between two shipments. A body is accepted only if it matches the hash in its record; a body that
was not sent is marked as missing.

    shipment = open_shipment(data, redactor)       # pure, redacted, ready for a store

Elsewhere: fleet/client/ship.py sends shipments; fleet/server/receive.py stores them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
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
"""Bytes decoded at once: enough to be fast, few enough to let other threads run."""
_ENVELOPE_STARTS = (b'{"kind":"body-part"', b'{"kind":"writer-end"')


class BodyPart(msgspec.Struct, tag_field="kind", tag="body-part", omit_defaults=True):
    """A piece of a long body. Pieces are sent in order."""

    writer: str
    seq: Count
    text: str | None = None
    base64: str | None = None
    """Replaces `text` if the piece is binary, or would grow too much as JSON."""
    v: int = VERSION


class WriterEnd(msgspec.Struct, tag_field="kind", tag="writer-end", omit_defaults=True):
    """The end of a writer: it sends no further records."""

    writer: str
    fault: str | None = None
    """Output of faulthandler when the process crashed."""
    v: int = VERSION


Envelope = BodyPart | WriterEnd
"""Lines that exist only in a shipment."""
Identity = tuple[str, int]


@dataclass(slots=True)
class Shipment:
    """The contents of one request, redacted and within the limits."""

    records: list[AnyRecord] = field(default_factory=list)
    bodies: dict[Identity, bytes] = field(default_factory=dict)
    """Long bodies, by the record that refers to them."""
    ends: list[WriterEnd] = field(default_factory=list)
    malformed: int = 0
    size_bytes: int = 0

    def read_spill(self, writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return self.bodies.get((writer, seq))

    def add(self, other: Shipment) -> None:
        """Add the contents of another request."""
        self.records += other.records
        self.bodies |= other.bodies
        self.ends += other.ends

    def rename_writers(self, renamed: Mapping[str, str]) -> None:
        """Follow records that were stored under other writers."""
        if renamed:
            self.bodies = {
                (renamed.get(writer, writer), seq): body
                for (writer, seq), body in self.bodies.items()
            }
            for end in self.ends:
                end.writer = renamed.get(end.writer, end.writer)


# --- sending ----------------------------------------------------------------------------------


def body_lines(writer: str, seq: int, data: bytes) -> Iterator[bytes]:
    """Yield a long body as lines of a shipment."""
    for at in range(0, len(data), PARCEL_PART_BYTES):
        yield _part_line(writer, seq, data[at : at + PARCEL_PART_BYTES])


def _part_line(writer: str, seq: int, piece: bytes) -> bytes:
    try:
        line = msgspec.json.encode(BodyPart(writer, seq, text=piece.decode())) + b"\n"
        if len(line) <= len(piece) * 4 // 3:
            return line
    except UnicodeDecodeError:
        pass
    encoded = base64.b64encode(piece).decode()
    return msgspec.json.encode(BodyPart(writer, seq, base64=encoded)) + b"\n"


def end_line(writer: str, fault: str | None) -> bytes:
    return msgspec.json.encode(WriterEnd(writer, fault)) + b"\n"


# --- receiving --------------------------------------------------------------------------------

_decoder: msgspec.json.Decoder[KnownRecord | Envelope] = msgspec.json.Decoder(
    KnownRecord | BodyPart | WriterEnd
)
_envelope_decoder: msgspec.json.Decoder[Envelope] = msgspec.json.Decoder(Envelope)


def open_shipment(data: bytes, redactor: Redactor) -> Shipment:
    """Parse and redact a shipment. Malformed lines are counted and skipped."""
    shipment = Shipment(size_bytes=len(data))
    parts: dict[Identity, list[bytes]] = {}
    for piece in _iter_pieces(data):
        items = _parse(piece, shipment)
        if not _are_valid_records(items):
            items = _split(items, shipment, parts, redactor)
        shipment.records += _redact_records(items, redactor)
        if len(shipment.records) > PARCEL_RECORDS_MAX:
            raise _too_many(PARCEL_RECORDS_MAX, "records")
    runs = len({record.run_id for record in shipment.records})
    writers = len({record.writer for record in shipment.records})
    if max(runs, writers) > PARCEL_RUNS_MAX:
        raise _too_many(PARCEL_RUNS_MAX, "runs or writers")
    if parts:
        _attach_bodies(shipment, parts, redactor)
    return shipment


def _too_many(most: int, items: str) -> ParcelTooLargeError:
    return ParcelTooLargeError(f"parcel: more than {most} {items}. Send fewer lines at once.")


def _iter_pieces(data: bytes) -> Iterator[bytes]:
    """Yield several lines at a time. A line longer than a piece comes alone."""
    at = 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + _PIECE) + 1
        if not end:
            end = data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end


def _parse(piece: bytes, shipment: Shipment) -> list[Any]:
    if len(piece) <= LINE_MAX:
        try:
            items = _decoder.decode_lines(piece)
            if {item.v for item in items} <= {VERSION}:
                return items
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    valid: list[Any] = []
    for line in piece.split(b"\n"):
        if line and not line.isspace():
            try:
                valid.append(_parse_line(line))
            except (BadLineError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                shipment.malformed += 1
    return valid


def _parse_line(line: bytes) -> AnyRecord | Envelope:
    if line.startswith(_ENVELOPE_STARTS) and len(line) <= LINE_MAX:
        return _envelope_decoder.decode(line)
    return parse_line(line)


def _are_valid_records(items: list[Any]) -> bool:
    """Return whether all items are records with valid ids, as they nearly always are."""
    return (
        {type(item) for item in items} <= _KNOWN
        and all(map(_is_writer, {item.writer for item in items}))
        and all(map(is_run_id, {item.run_id for item in items}))
    )


def _split(
    items: list[Any], shipment: Shipment, parts: dict[Identity, list[bytes]], redactor: Redactor
) -> list[Any]:
    """Return the records. Body parts and ends are added to `parts` and the shipment."""
    records = []
    for item in items:
        if not _is_writer(item.writer):
            shipment.malformed += 1
        elif isinstance(item, BodyPart):
            parts.setdefault((item.writer, item.seq), []).append(_decode_part(item))
        elif isinstance(item, WriterEnd):
            shipment.ends.append(_redact_end(item, redactor))
        elif item.run_id is None or is_run_id(item.run_id):
            records.append(item)
        else:
            shipment.malformed += 1
    return records


_KNOWN = frozenset((SpanOpen, SpanUpdate, SpanClose, Log))


# Ids become rows that all tenants' queries scan: they must have the shape of a recorder's ids.
def _is_writer(writer: str) -> bool:
    return WRITER.fullmatch(writer) is not None


def _redact_records(records: list[AnyRecord], redactor: Redactor) -> list[AnyRecord]:
    if not any(type(record) is Unknown for record in records):
        return masked(records, redactor)  # type: ignore[arg-type,return-value]  # none is Unknown
    return [
        _redact_unknown(record, redactor)
        if isinstance(record, Unknown)
        else masked([record], redactor)[0]
        for record in records
    ]


def _redact_unknown(record: Unknown, redactor: Redactor) -> Unknown:
    """Redact a record of a newer kind, of which only the identity and JSON are known."""
    if not redactor.suspicious(msgspec.json.encode(record.fields)):
        return record
    fields = redactor.nested(record.fields)
    ids = {"kind": record.kind, "writer": record.writer, "seq": record.seq, "run_id": record.run_id}
    return Unknown(record.kind, record.writer, record.seq, record.run_id, fields | ids)


def _redact_end(end: WriterEnd, redactor: Redactor) -> WriterEnd:
    if end.fault is None:
        return end
    return WriterEnd(end.writer, redactor.text(end.fault)[:BODY_INLINE_MAX])


# --- long bodies --------------------------------------------------------------------------------


def _decode_part(part: BodyPart) -> bytes:
    if part.text is not None:
        return part.text.encode(errors="replace")
    try:
        return base64.b64decode(part.base64 or "", validate=True)
    except (binascii.Error, ValueError):
        return b""  # the body's hash does not match then, and the body is missing


def _attach_bodies(
    shipment: Shipment, parts: dict[Identity, list[bytes]], redactor: Redactor
) -> None:
    """Assign each body to its record. Bodies without a record are dropped."""
    for index, record in enumerate(shipment.records):
        info = getattr(record, "body_info", None)
        if info is None or info.spilled_bytes is None:
            continue
        data = b"".join(parts.pop((record.writer, record.seq), ()))
        if not data or len(data) > BODY_MAX + MIB:
            continue
        if hashlib.sha256(data).hexdigest() != info.sha256:
            continue
        data, counts = _redact_body(data, redactor)
        if counts:
            merged = {**counts, **(record.redacted or {})}  # type: ignore[union-attr]  # has a body
            shipment.records[index] = msgspec.structs.replace(record, redacted=merged)
        shipment.bodies[record.writer, record.seq] = data


def _redact_body(data: bytes, redactor: Redactor) -> tuple[bytes, dict[str, int]]:
    """Redact in the recorder's steps. A clean body is returned unchanged."""
    counts: dict[str, int] = {}
    text = data.decode(errors="surrogateescape")
    steps = (text[at : at + BODY_CHUNK] for at in range(0, len(text), BODY_CHUNK))
    cleaned = "".join(redactor.stream(steps, counts))
    return (data, {}) if cleaned == text else (cleaned.encode(errors="surrogateescape"), counts)
