"""Numbers about the server, for Prometheus: requests, durations, sizes, lag, ingest.

    server.metrics.count("vestige_ingest_records_total", 12, outcome="taken")
    server.metrics.observe("/api/v1/list", 0.004)

Names and labels come from this code only, never from a request: their number is bounded.
"""

from __future__ import annotations

import threading

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and histograms; any thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = {}
        self._durations: dict[str, list[float]] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            values = self._counters.setdefault(name, {})
            values[key] = values.get(key, 0) + by

    def observe(self, route: str, seconds: float) -> None:
        """How long one request of this route took."""
        with self._lock:
            slots = self._durations.setdefault(route, [0.0] * (len(BUCKETS_S) + 2))
            for index, bound in enumerate(BUCKETS_S):
                if seconds <= bound:
                    slots[index] += 1
            slots[-2] += 1
            slots[-1] += seconds
