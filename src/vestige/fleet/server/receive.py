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
from vestige.fleet.server.otlp_ingest import KINDS, Spans, keep_in_steps, open_spans
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
Opened = Shipment | Spans | ParcelError
Keeping = Generator[None, None, Outcome]
"""Stores one delivery in steps, and returns what became of it."""


class Receiver:
    """One connection that writes. For one thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._redactor = Redactor(kept_in=home.scanners)
        self._parcel = Shipment()
        self._ended = 0
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
        """Take them all in, in one transaction. Any error: none of them was kept."""
        with pause_gc():
            opened = [(open_delivery(each, self._redactor), each.tenant) for each in deliveries]
            with self.transaction():
                return [self._run(self.keep(found, tenant)) for found, tenant in opened]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is kept inside is durable at the end; then open spans of ended writers are closed."""
        if not self._store.is_in_place():  # else we would say "kept" of what nobody finds
            self._store.close()
            self._store = self._open_store()
        self._ended = 0
        with self._store.transaction():
            yield
        if self._ended:
            stamp_dead(self._home, self._store)

    def keep(self, found: Opened, tenant: str) -> Keeping:
        """Store it, in the caller's transactions: it may commit, or keep another, at each yield."""
        if isinstance(found, ParcelError):
            return found
        if isinstance(found, Spans):
            kept = yield from keep_in_steps(self._store, found, tenant)
            return Receipt(kept.records, kept.new, kept.rejected, 0, kept.message)
        yield
        self._parcel = found
        try:
            new, ended = self._store.append_remote(
                _in_order(found.records), [(end.writer, end.fault) for end in found.ends], tenant
            )
        except (ForeignRunError, ParcelError) as error:
            return _without_traceback(error)
        finally:
            self._parcel = Shipment()
        self._ended += ended
        return Receipt(len(found.records), new, found.malformed, ended)

    @staticmethod
    def _run(keeping: Keeping) -> Outcome:
        while True:
            try:
                next(keeping)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome

    def _read_spill(self, writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return self._parcel.read_spill(writer, seq, info)


def open_delivery(delivery: Delivery, redactor: Redactor) -> Opened:
    """Unpack, parse and mask a delivery; in any thread that has a redactor of its own."""
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
    except Exception as error:  # noqa: BLE001  # a foreign shape that we do not master costs its request, not those beside it
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {where.name}:{where.lineno}"
        return ParcelError(f"request: could not be read: a bug in vestige ({place}).")


Refused = TypeVar("Refused", bound=VestigeError)


def _without_traceback(error: Refused) -> Refused:
    """The error as a value. Its traceback holds frames, and those what a bomb unfolded to."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _in_order(records: list[AnyRecord]) -> list[AnyRecord]:
    """Nearly in order, as journals are, a set of numbers is added to at its end. Somebody who sends
    them backwards would make it be copied for each."""
    steps_back = sum(one.seq > other.seq for one, other in pairwise(records))
    if steps_back * 4 <= len(records):
        return records
    return sorted(records, key=lambda record: (record.writer, record.seq))
