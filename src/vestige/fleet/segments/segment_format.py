"""The contents of a segment: shipments that were accepted, redacted, in one compressed file.

    data = encode_segment([make_delivery(opened, tenant)])
    for delivery in decode_segment(data):
        receiver.store(delivery.open(), delivery.tenant)

One line of JSON for each shipment, compressed with zstd: `zstdcat` shows a segment. Nothing in it
needs to be redacted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from vestige._runtime.zstd import zstd
from vestige.errors import UnreadableError
from vestige.fleet.server.otlp_ingest import Spans
from vestige.fleet.shipment import Shipment, WriterEnd
from vestige.limits import MIB
from vestige.record.types import AnyRecord, KnownRecord, Unknown

VERSION: Final = 1
_DECOMPRESSED_MAX: Final = 1_024 * MIB
"""No segment that a server writes is longer: it has a few shipments, which are bounded."""
_LEVEL: Final = 3


class StoredDelivery(msgspec.Struct, omit_defaults=True):
    """A shipment of a segment."""

    v: int
    tenant: str
    records: list[KnownRecord] = []
    unknown: list[dict[str, Any]] = []
    """Records of kinds that this version does not know."""
    bodies: list[tuple[str, int, bytes]] = []
    """Long bodies, with the writer and seq of their record."""
    ends: list[WriterEnd] = []
    own: dict[str, str] | None = None
    """Spans of an OpenTelemetry exporter: runs that Vestige itself exported, with their writers."""

    def open(self) -> Shipment | Spans:
        """Return the shipment in the form in which a receiver stores it."""
        if self.own is not None:
            runs: dict[str, list[KnownRecord]] = {}
            for record in self.records:
                runs.setdefault(record.run_id, []).append(record)
            return Spans(runs, self.own, 0, "")
        records: list[AnyRecord] = [*self.records, *map(_parse_unknown, self.unknown)]
        bodies = {(writer, seq): data for writer, seq, data in self.bodies}
        return Shipment(records, bodies, self.ends)


def make_delivery(opened: Shipment | Spans, tenant: str) -> StoredDelivery:
    """Return an opened shipment in the form in which a segment stores it."""
    if isinstance(opened, Spans):
        records = [record for run in opened.runs.values() for record in run]
        return StoredDelivery(VERSION, tenant, records, own=opened.own)
    return StoredDelivery(
        VERSION,
        tenant,
        [record for record in opened.records if not isinstance(record, Unknown)],
        [record.fields for record in opened.records if isinstance(record, Unknown)],
        [(writer, seq, data) for (writer, seq), data in opened.bodies.items()],
        opened.ends,
    )


def encode_segment(deliveries: Sequence[StoredDelivery]) -> bytes:
    """Return the bytes of a segment."""
    data: bytes = zstd.compress(_encoder.encode_lines(deliveries), level=_LEVEL)
    return data


def decode_segment(data: bytes) -> list[StoredDelivery]:
    """Return the shipments of a segment. Raise UnreadableError if it is damaged."""
    try:
        frame = zstd.ZstdDecompressor()
        deliveries = _decoder.decode_lines(frame.decompress(data, _DECOMPRESSED_MAX))
    except (zstd.ZstdError, msgspec.DecodeError, UnicodeDecodeError, EOFError) as error:
        raise UnreadableError(f"segment: damaged ({error}).") from None
    if not frame.eof:
        raise UnreadableError("segment: damaged (it ends too early).")
    if newer := [delivery.v for delivery in deliveries if delivery.v > VERSION]:
        raise UnreadableError(
            f"segment: version {newer[0]} is newer than this vestige (expected {VERSION})."
            " Upgrade vestige."
        )
    return deliveries


def _parse_unknown(fields: dict[str, Any]) -> Unknown:
    return Unknown(fields["kind"], fields["writer"], fields["seq"], fields.get("run_id"), fields)


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(StoredDelivery)
