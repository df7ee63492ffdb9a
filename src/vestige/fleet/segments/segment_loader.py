"""Store segments in large batches, each once, whatever crashes in between.

    loader = SegmentLoader(home, open_storage("s3://bucket/prefix"))
    while True:
        loader.load_batch()

A batch is one transaction of the store, after which its segments are deleted. A loader that is
killed between the two loads them again: records are known by writer and seq, so none is stored
twice. A second loader is safe, too, but only repeats the work of the first.

A segment that cannot be read or stored, for another reason than that the store is unavailable, is
moved to `rejected/`, with its reason in the result. The others are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vestige._runtime import clock
from vestige._runtime.gc_pause import pause_gc
from vestige.errors import StoreError, UnreadableError
from vestige.fleet.segments.segment_format import StoredDelivery, decode_segment
from vestige.fleet.segments.segment_storage import REJECTED, SegmentInfo, SegmentStorage
from vestige.fleet.server.otlp_ingest import Spans
from vestige.fleet.server.receive import Receipt, Receiver
from vestige.fleet.shipment import Shipment
from vestige.home import Home
from vestige.settings import find_store
from vestige.store.open import is_server_address, read_server_status

BATCH_RECORDS: Final = 50_000
"""Records of one transaction, which bounds the memory of the loader."""
BATCH_SEGMENTS: Final = 500
TRIES_MAX: Final = 3
"""The number of failures after which a segment is rejected, if the store is available.

A connection that breaks may look like a bug."""
PARTS_INTERVAL_S: Final = 10.0
"""The time between two looks at the number of parts."""
PARTS_MAX: Final = 600
"""Parts of a partition above which the loader waits for merges. ClickHouse delays inserts at 1000
and refuses them at 3000."""


_Segment = tuple[str, list[StoredDelivery]]


@dataclass(slots=True)
class LoadResult:
    """The result of loading a batch."""

    segments: int = 0
    records: int = 0
    new: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list)
    """The reasons for which segments were rejected."""
    is_full: bool = False
    """More segments are waiting."""
    is_blocked: bool = False
    """Nothing was loaded, because the store has to merge parts first."""


def _merge(batch: Sequence[_Segment]) -> list[tuple[str, Shipment | Spans]]:
    """Return one shipment for each tenant, and one of OpenTelemetry spans.

    To store a shipment takes some ten queries, however small it is.
    """
    merged: dict[tuple[str, type], Shipment | Spans] = {}
    for _, deliveries in batch:
        for delivery in deliveries:
            opened = delivery.open()
            into = merged.setdefault((delivery.tenant, type(opened)), opened)
            if into is opened:
                continue
            if isinstance(opened, Spans):
                assert isinstance(into, Spans)
                into.add(opened)
            else:
                assert isinstance(into, Shipment)
                into.add(opened)
    return [(tenant, opened) for (tenant, _), opened in merged.items()]


class _RefusedError(Exception):
    """The store refused a shipment of a segment."""


class SegmentLoader:
    """Loads segments into the store of a home."""

    def __init__(self, home: Home, storage: SegmentStorage) -> None:
        self._home = home
        self._storage = storage
        self._receiver: Receiver | None = None
        self._parts_read = -PARTS_INTERVAL_S
        self._has_room = True
        self._failures: dict[str, int] = {}
        """The number of failures of each segment."""

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.__exit__(None, None, None)
            self._receiver = None

    def load_batch(self) -> LoadResult:
        """Load the oldest segments. Raise StoreError if the store or their place fails."""
        result = LoadResult()
        if not self._read_room():
            result.is_full = result.is_blocked = True
            return result
        waiting = self._storage.list_segments()
        batch = self._read_batch(waiting, result)
        result.is_full = result.segments + result.rejected < len(waiting)
        if batch:
            with pause_gc():
                self._store(batch, result)
            self._storage.delete(key for key, _ in batch)
        return result

    def _read_batch(self, waiting: Sequence[SegmentInfo], result: LoadResult) -> list[_Segment]:
        batch: list[_Segment] = []
        records = 0
        for info in waiting[:BATCH_SEGMENTS]:
            if records >= BATCH_RECORDS:
                break
            data = self._storage.find(info.key)
            if data is None:
                continue
            try:
                deliveries = decode_segment(data)
            except UnreadableError as error:
                self._reject(info.key, data, str(error), result)
                continue
            records += sum(len(each.records) + len(each.unknown) for each in deliveries)
            batch.append((info.key, deliveries))
        result.segments = len(batch)
        result.records = records
        return batch

    def _store(self, batch: Sequence[_Segment], result: LoadResult) -> None:
        try:
            result.new += self._store_once(batch)
            return
        except (OSError, StoreError):
            self.close()
            raise
        except Exception as error:  # noqa: BLE001  # one segment must not stop all others
            self.close()
            reason = f"{type(error).__name__}: {error}"
        for key, _ in batch:
            data = self._storage.find(key)
            if data is None:
                continue
            if len(batch) > 1:
                self._store([(key, decode_segment(data))], result)
            elif self._count_failure(key) < TRIES_MAX:
                raise StoreError(f"{key}: cannot be stored ({reason}).")
            else:
                self._reject(key, data, reason, result)

    def _count_failure(self, key: str) -> int:
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key]

    def _store_once(self, batch: Sequence[_Segment]) -> int:
        """Store all shipments of a batch in one transaction. Return how many records were new."""
        if self._receiver is None:
            self._receiver = Receiver(self._home)
        new = 0
        with self._receiver.transaction():
            for tenant, opened in _merge(batch):
                outcome = self._receiver.store_now(opened, tenant)
                if not isinstance(outcome, Receipt):
                    raise _RefusedError(str(outcome))
                new += outcome.new
        return new

    def _reject(self, key: str, data: bytes, reason: str, result: LoadResult) -> None:
        self._storage.put(REJECTED + key, data)
        self._storage.delete([key])
        self._failures.pop(key, None)
        result.rejected += 1
        result.reasons.append(f"{key}: {reason}")

    def _read_room(self) -> bool:
        """Return whether merges keep up with inserts, so that no insert is refused."""
        now = clock.monotonic()
        if now - self._parts_read >= PARTS_INTERVAL_S:
            location = find_store(self._home)
            if isinstance(location, str) and is_server_address(location):
                parts = read_server_status(location).parts_in_partition
                self._has_room = parts <= PARTS_MAX
            self._parts_read = now
        return self._has_room
