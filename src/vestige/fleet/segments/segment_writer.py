"""Write accepted shipments as segments, in place of storing them.

    receiver = SegmentReceiver(open_storage("s3://bucket/prefix"))
    with receiver.transaction():
        receipt = yield from receiver.store(opened, tenant)

All shipments of one transaction are one segment, which is durable when the transaction ends. Its
key is a random id of this process and the number of its first shipment, so that no two processes
write the same key. If too much waits for the loader, shipments are refused, and senders wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vestige._runtime import clock
from vestige.errors import StoreError
from vestige.fleet.segments.segment_format import StoredDelivery, encode_segment, make_delivery
from vestige.fleet.segments.segment_storage import SegmentExistsError, SegmentStorage, make_key
from vestige.fleet.server.otlp_ingest import Spans
from vestige.fleet.server.receive import Opened, Receipt, StoreSteps
from vestige.limits import SEGMENTS_WAITING_BYTES_MAX, SEGMENTS_WAITING_MAX

BACKLOG_INTERVAL_S: Final = 5.0
"""The time for which the size of the backlog is taken for unchanged."""


class SegmentReceiver:
    """Writes shipments as segments, for one thread."""

    def __init__(
        self,
        storage: SegmentStorage,
        waiting_max: int = SEGMENTS_WAITING_MAX,
        waiting_bytes_max: int = SEGMENTS_WAITING_BYTES_MAX,
    ) -> None:
        self._storage = storage
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self._writer = clock.random_bytes(8).hex()
        self._number = 1
        """The number of the next shipment."""
        self._deliveries: list[StoredDelivery] = []
        self._backlog: tuple[int, int] = (0, 0)
        self._listed = -BACKLOG_INTERVAL_S

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything stored inside durable. If it raises, nothing of it is."""
        self._require_room()
        self._deliveries = []
        yield
        if self._deliveries:
            data = encode_segment(self._deliveries)
            try:
                self._storage.put(make_key(self._writer, self._number), data)
            except SegmentExistsError:
                self._writer, self._number = clock.random_bytes(8).hex(), 1
                self._storage.put(make_key(self._writer, self._number), data)
            self._number += len(self._deliveries)
            self._backlog = self._backlog[0] + 1, self._backlog[1] + len(data)

    def store(self, opened: Opened, tenant: str) -> StoreSteps:
        """Add a shipment to the segment. Which of its records are new, only the loader knows."""
        yield
        if isinstance(opened, Exception):
            return opened
        delivery = make_delivery(opened, tenant)
        self._deliveries.append(delivery)
        records = len(delivery.records) + len(delivery.unknown)
        if isinstance(opened, Spans):
            return Receipt(records, records, opened.rejected, 0, opened.message)
        return Receipt(records, records, opened.malformed, len(opened.ends))

    def _require_room(self) -> None:
        now = clock.monotonic()
        if now - self._listed >= BACKLOG_INTERVAL_S:
            waiting = self._storage.list_segments()
            self._backlog = len(waiting), sum(info.size_bytes for info in waiting)
            self._listed = now
        if self._backlog[0] >= self._waiting_max or self._backlog[1] >= self._waiting_bytes_max:
            raise StoreError(
                f"segments: {self._backlog[0]} with {self._backlog[1]} bytes wait for the loader"
                f" (expected fewer than {self._waiting_max} and {self._waiting_bytes_max} bytes)."
                " See `vestige store load`."
            )
