"""Take in what other machines send: parcels into the store, several in one transaction.

    with Receiver(home) as receiver:
        outcomes = receiver.take([Delivery(packed, "zstd", "default")])

An outcome is given only when it is durable. The store's usual mode (WAL, synchronous NORMAL)
survives a killed process, but a power cut may take its last commits, as the log is synced only
now and then; a local journal outlives that, a sender that was told "I have it" does not. So this
connection commits with FULL: one fsync of the log for each transaction, shared by all parcels
in it.

A parcel that is refused (another tenant's run, or not readable) leaves nothing behind; those
beside it are not touched.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self

from vestige._runtime.gc_pause import pause_gc
from vestige.collector.crash_detection import stamp_dead
from vestige.errors import ForeignRunError, ParcelError
from vestige.fleet.compression import unpack
from vestige.fleet.server.otlp_ingest import KINDS, Spans, keep_spans, open_spans
from vestige.fleet.shipment import Shipment, open_shipment
from vestige.home import Home
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import AnyRecord, BodyInfo
from vestige.store.sqlite.sqlite_store import SqliteStore

JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came, and whose key brought it."""

    packed: bytes
    encoding: str
    tenant: str
    kind: str = JOURNAL
    """Or one of `traces.KINDS`."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a parcel that is now kept."""

    records: int
    new: int
    """Of them, those that were not known already."""
    malformed: int
    ended: int
    """Writers that are known to be gone now."""
    message: str = ""
    """Why some of it was not taken."""


Outcome = Receipt | ForeignRunError | ParcelError


class Receiver:
    """One connection that writes. For one thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._redactor = Redactor(kept_in=home.scanners)
        self._parcel = Shipment()
        self._store = self._open_store()

    def _open_store(self) -> SqliteStore:
        self._home.make()
        return SqliteStore.open(self._home.store, read_spill=self._read_spill, synced=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    def take(self, deliveries: Sequence[Delivery]) -> list[Outcome]:
        """All of them in one transaction; an outcome each. Any error: none of them was kept."""
        if not self._store.is_in_place():  # else we would say "kept" of what nobody finds
            self._store.close()
            self._store = self._open_store()
        with pause_gc():
            opened = [self._open(delivery) for delivery in deliveries]
            with self._store.transaction():
                outcomes = [
                    found if isinstance(found, ParcelError) else self._keep(found, delivery.tenant)
                    for delivery, found in zip(deliveries, opened, strict=True)
                ]
        if any(isinstance(outcome, Receipt) and outcome.ended for outcome in outcomes):
            stamp_dead(self._home, self._store)
        return outcomes

    def _open(self, delivery: Delivery) -> Shipment | Spans | ParcelError:
        try:
            if delivery.kind in KINDS:
                return self._open_spans(delivery)
            return open_shipment(unpack(delivery.packed, delivery.encoding), self._redactor)
        except ParcelError as error:
            return error

    def _open_spans(self, delivery: Delivery) -> Spans | ParcelError:
        data = unpack(delivery.packed, delivery.encoding)
        try:
            return open_spans(data, delivery.kind, self._redactor)
        except ParcelError:
            raise
        except Exception as error:  # noqa: BLE001  # a foreign shape that we do not master costs its request, not those beside it
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {where.name}:{where.lineno}"
            return ParcelError(f"request: could not be read: a bug in vestige ({place}).")

    def _keep(self, parcel: Shipment | Spans, tenant: str) -> Outcome:
        if isinstance(parcel, Spans):
            kept = keep_spans(self._store, parcel, tenant)
            return Receipt(kept.records, kept.new, kept.rejected, 0, kept.message)
        self._parcel = parcel
        try:
            new, ended = self._store.append_remote(
                _in_order(parcel.records), [(end.writer, end.fault) for end in parcel.ends], tenant
            )
        except (ForeignRunError, ParcelError) as error:
            return error
        return Receipt(len(parcel.records), new, parcel.malformed, ended)

    def _read_spill(self, writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return self._parcel.read_spill(writer, seq, info)


def _in_order(records: list[AnyRecord]) -> list[AnyRecord]:
    """Nearly in order, as journals are, a set of numbers is added to at its end. Somebody who sends
    them backwards would make it be copied for each."""
    steps_back = sum(one.seq > other.seq for one, other in pairwise(records))
    if steps_back * 4 <= len(records):
        return records
    return sorted(records, key=lambda record: (record.writer, record.seq))
