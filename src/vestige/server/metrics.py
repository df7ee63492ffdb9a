"""Prometheus metrics of the server: requests, durations, ingest.

    server.metrics.count("vestige_ingest_records_total", 12, outcome="taken")
    server.metrics.observe("/api/v1/list", 0.004)

Names and labels never come from a request, so their number is bounded.

Elsewhere: the route is in server/routes/metrics.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

HELP = {
    "vestige_http_requests_total": "Requests by route, method and status.",
    "vestige_http_request_duration_seconds": "Duration of requests, by route.",
    "vestige_ingest_records_total": "Records received from other machines, by outcome.",
    "vestige_ingest_bytes_total": "Bytes received from other machines.",
    "vestige_ingest_requests_total": "Batches received from other machines, by outcome.",
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Thread-safe counters and histograms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = {}
        self._durations: dict[str, _Durations] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            values = self._counters.setdefault(name, {})
            values[key] = values.get(key, 0) + by

    def observe(self, route: str, seconds: float) -> None:
        """Add the duration of one request to the route's histogram."""
        with self._lock:
            durations = self._durations.get(route)
            if durations is None:
                durations = self._durations[route] = _Durations()
            durations.add(seconds)

    def render(self, gauges: Mapping[str, tuple[float, str]]) -> str:
        """Render Prometheus' text format. `gauges` are current values and their help texts."""
        with self._lock:
            lines = [*self._counter_lines(), *self._duration_lines()]
        for name, (value, meaning) in sorted(gauges.items()):
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _counter_lines(self) -> Iterator[str]:
        for name, values in sorted(self._counters.items()):
            yield f"# HELP {name} {HELP.get(name, name)}"
            yield f"# TYPE {name} counter"
            for labels, value in sorted(values.items()):
                yield f"{name}{_labels(labels)} {value:.15g}"

    def _duration_lines(self) -> Iterator[str]:
        name = "vestige_http_request_duration_seconds"
        if self._durations:
            yield f"# HELP {name} {HELP[name]}"
            yield f"# TYPE {name} histogram"
        for route, durations in sorted(self._durations.items()):
            total = 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), durations.counts, strict=True):
                total += count
                labels = (("le", str(bound)), ("route", route))
                yield f"{name}_bucket{_labels(labels)} {total}"
            yield f"{name}_sum{_labels((('route', route),))} {durations.sum_s:.9g}"
            yield f"{name}_count{_labels((('route', route),))} {total}"


class _Durations:
    """Histogram of durations: a count per bucket, and the sum."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        bucket = next((i for i, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))
        self.counts[bucket] += 1
        self.sum_s += seconds


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
