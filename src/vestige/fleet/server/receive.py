"""Store shipments from other machines, several in one transaction.

    with Receiver(home) as receiver:
        outcomes = receiver.ingest([Delivery(packed, "zstd", "default")])

An outcome is returned only when it is durable. The store's usual mode (WAL, synchronous NORMAL)
survives a killed process, but a power failure may lose the last commits. Local journals outlive
that; acknowledged shipments are not sent again. So this connection commits with FULL: one fsync of
the WAL per transaction, shared by all shipments in it.

A refused shipment (another tenant's run, or unreadable) stores nothing and does not affect the
others in its transaction.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar

from vestige._runtime.gc_pause import pause_gc
from vestige.collector.crash_detection import stamp_dead
from vestige.errors import ForeignRunError, ParcelError, VestigeError
from vestige.fleet.compression import unpack
from vestige.fleet.server.id_collisions import rename_collisions
from vestige.fleet.server.otlp_ingest import KINDS, Spans, open_spans, store_in_steps
from vestige.fleet.shipment import Shipment, open_shipment
from vestige.home import JOURNAL_SUFFIX, Home
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import AnyRecord, BodyInfo
from vestige.settings import find_store
from vestige.store.open import open_store
from vestige.store.protocol import Store

JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The body of a request, and the tenant of its key."""

    packed: bytes
    encoding: str
    tenant: str
    kind: str = JOURNAL
    """JOURNAL, or one of KINDS in fleet/server/otlp_ingest.py."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a shipment that is stored."""

    records: int
    new: int
    """Records that the store did not have yet."""
    malformed: int
    ended: int
    """Writers that are now known to have ended."""
    message: str = ""
    """The reason if some records were refused."""


Outcome = Receipt | ForeignRunError | ParcelError
Opened = Shipment | Spans | ParcelError
StoreSteps = Generator[None, None, Outcome]
"""Stores one delivery in steps, and returns its outcome."""


class Receiver:
    """A writing connection to the store, for one thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._redactor = Redactor(cache_folder=home.scanners)
        self._bodies: dict[tuple[str, int], bytes] = {}
        """Long bodies of the current transaction, which a store may repeat."""
        self._ended = 0
        self._store = self._open_store()

    def _open_store(self) -> Store:
        self._home.make()
        return open_store(find_store(self._home), read_spill=self._read_spill, synced=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    def ingest(self, deliveries: Sequence[Delivery]) -> list[Outcome]:
        """Store all deliveries in one transaction. If it raises, none of them is stored."""
        with pause_gc():
            opened = [
                (open_delivery(delivery, self._redactor), delivery.tenant)
                for delivery in deliveries
            ]
            with self.transaction():
                return [self.store_now(found, tenant) for found, tenant in opened]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything stored inside durable, then close open spans of ended writers."""
        if not self._store.is_in_place():  # writing to a replaced store would lose the records
            self._store.close()
            self._store = self._open_store()
        self._ended = 0
        try:
            with self._store.transaction():
                yield
        finally:
            self._bodies.clear()
        if self._ended:
            stamp_dead(self._home, self._store)

    def store(self, opened: Opened, tenant: str) -> StoreSteps:
        """Store in the caller's transactions. At each yield it may commit or store another."""
        if isinstance(opened, ParcelError):
            return opened
        if isinstance(opened, Spans):
            result = yield from store_in_steps(self._store, opened, tenant, self._has_journal)
            return Receipt(result.records, result.new, result.rejected, 0, result.message)
        yield
        renamed = rename_collisions(
            self._store, opened.records, tenant, [end.writer for end in opened.ends]
        )
        opened.rename_writers(renamed.writers)
        self._bodies.update(opened.bodies)
        try:
            new, ended = self._store.append_remote(
                _in_order(opened.records), [(end.writer, end.fault) for end in opened.ends], tenant
            )
        except (ForeignRunError, ParcelError) as error:
            return _without_traceback(error)
        self._ended += ended
        return Receipt(len(opened.records), new, opened.malformed, ended)

    def store_now(self, opened: Opened, tenant: str) -> Outcome:
        """Store a delivery in all its steps, in the caller's transaction."""
        steps = self.store(opened, tenant)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome

    def _has_journal(self, writer: str) -> bool:
        """Return whether a process of this data directory writes or wrote the journal."""
        return any(self._home.journal.glob(f"{writer}.*{JOURNAL_SUFFIX}"))

    def _read_spill(self, writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return self._bodies.get((writer, seq))


def open_delivery(delivery: Delivery, redactor: Redactor) -> Opened:
    """Decompress, parse and redact a delivery. Thread-safe if each thread has its own redactor."""
    try:
        data = unpack(delivery.packed, delivery.encoding)
        if delivery.kind in KINDS:
            return _open_spans(data, delivery.kind, redactor)
        return open_shipment(data, redactor)
    except ParcelError as error:
        return _without_traceback(error)


def _open_spans(data: bytes, kind: str, redactor: Redactor) -> Spans | ParcelError:
    try:
        return open_spans(data, kind, redactor)
    except ParcelError:
        raise
    except Exception as error:  # noqa: BLE001  # a bug fails one request, not the others
        frame = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{type(error).__name__} at {frame.name}:{frame.lineno}"
        return ParcelError(f"request: could not be read: a bug in vestige ({location}).")


Refused = TypeVar("Refused", bound=VestigeError)


def _without_traceback(error: Refused) -> Refused:
    """Drop the traceback, whose frames may refer to megabytes of decompressed data."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _in_order(records: list[AnyRecord]) -> list[AnyRecord]:
    """Sort records that are far out of order.

    The store's ranges of sequence numbers are cheap to extend at the end, as with journals.
    Records sent backwards would copy them for each record.
    """
    steps_back = sum(record.seq > following.seq for record, following in pairwise(records))
    if steps_back * 4 <= len(records):
        return records
    return sorted(records, key=lambda record: (record.writer, record.seq))
