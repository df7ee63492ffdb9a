"""Rollups: daily sums per tenant, component, type, name and model, which outlive the spans.

Durations go into a histogram (store/histogram.py), so quantiles are known even years later.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from vestige.limits import SUM_MAX
from vestige.record.tenant import DEFAULT_TENANT
from vestige.store.histogram import bucket
from vestige.store.interface.stats import to_count

NAMES_MAX = 2_000
"""Distinct keys per day and tenant. Names that contain ids must not grow a permanent table."""

OTHER = "(other)"
_DAY_NS = 86_400 * 10**9

Key = tuple[int, str, str, str, str]
"""Day number, component, type, name, model."""


class Sums:
    """The sums of one key."""

    __slots__ = (
        "cache_read",
        "cache_write",
        "durations",
        "errors",
        "input",
        "output",
        "subtracted",
    )

    def __init__(self) -> None:
        self.errors = 0
        self.input = self.output = self.cache_read = self.cache_write = 0
        self.durations: list[int] = []
        """A change per span. They are summed once, when written, which is faster."""
        self.subtracted: list[int] = []

    def count(self) -> int:
        return len(self.durations) - len(self.subtracted)

    def duration_ns(self) -> int:
        return sum(self.durations) - sum(self.subtracted)

    def histogram(self) -> Counter[int]:
        buckets = Counter(map(bucket, self.durations))
        buckets.subtract(map(bucket, self.subtracted))
        return buckets

    def add_tokens(self, attributes: Mapping[str, Any], times: int) -> None:
        self.input += times * to_count(attributes.get("input_tokens"))
        self.output += times * to_count(attributes.get("output_tokens"))
        if "cache_read_tokens" in attributes:
            self.cache_read += times * to_count(attributes["cache_read_tokens"])
        if "cache_write_tokens" in attributes:
            self.cache_write += times * to_count(attributes["cache_write_tokens"])

    def tokens(self) -> tuple[int, int, int, int]:
        return self.input, self.output, self.cache_read, self.cache_write


class Rollups:
    """The sums of one batch. `write` merges them into the table."""

    def __init__(self, tenant: str = DEFAULT_TENANT) -> None:
        self._tenant = tenant
        self._sums: dict[Key, Sums] = {}

    def add(
        self,
        ended_ns: int,
        component: str,
        type: str,
        name: str,
        status: str,
        duration_ns: int,
        attributes: Mapping[str, Any],
        times: int = 1,
    ) -> None:
        """Add an ended span; with `times` -1, subtract one that was added before."""
        model = attributes.get("model") if attributes else None
        if model.__class__ is not str:
            model = ""
        key = (ended_ns // _DAY_NS, component, type, name, model)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums()
        (sums.durations if times > 0 else sums.subtracted).append(duration_ns)
        if status != "ok":
            sums.errors += times
        if attributes and ("input_tokens" in attributes or "output_tokens" in attributes):
            sums.add_tokens(attributes, times)

    def add_tokens(
        self,
        ended_ns: int,
        component: str,
        type: str,
        name: str,
        attributes: Mapping[str, Any],
        times: int,
    ) -> None:
        """Add the tokens of a span, without its count and duration; `times` -1 subtracts them."""
        model = attributes.get("model")
        key = (ended_ns // _DAY_NS, component, type, name, model if isinstance(model, str) else "")
        self._sums.setdefault(key, Sums()).add_tokens(attributes, times)

    def write(self, connection: sqlite3.Connection) -> None:
        """Merge the sums into the table, in the caller's transaction."""
        rows_of_day: dict[str, int] = {}
        for (day_number, component, kind, name, model), sums in self._sums.items():
            day = format_day(day_number)
            if day not in rows_of_day:
                rows_of_day[day] = connection.execute(
                    "SELECT count(*) FROM rollups WHERE day = ? AND tenant = ?", (day, self._tenant)
                ).fetchone()[0]
            key = (day, self._tenant, component, kind, name, model)
            row = connection.execute(_SELECT, key).fetchone()
            if row is None and rows_of_day[day] >= NAMES_MAX:
                key = (day, self._tenant, component, kind, OTHER, "")
                row = connection.execute(_SELECT, key).fetchone()
            count = sums.count()
            if row is None and count <= 0:
                continue  # a clock was set, so the span was added to the sums of another day
            if row is None:
                rows_of_day[day] += 1
            histogram = sums.histogram()
            if row is not None:
                for text, before in msgspec.json.decode(row[0]).items():
                    histogram[int(text)] += before
            connection.execute(
                _UPSERT,
                (
                    *key,
                    count,
                    sums.errors,
                    min(sums.duration_ns(), SUM_MAX),
                    _render_histogram(histogram),
                    *(min(each, SUM_MAX) for each in sums.tokens()),
                ),
            )
            if count < 0:
                connection.execute(_DELETE_EMPTY, key)
        self._sums.clear()


def _render_histogram(histogram: Mapping[int, int]) -> str:
    buckets = {number: count for number, count in sorted(histogram.items()) if count > 0}
    return msgspec.json.encode(buckets).decode()


def format_day(number: int) -> str:
    import datetime

    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=number)).isoformat()


_WHERE = "WHERE day = ? AND tenant = ? AND component = ? AND type = ? AND name = ? AND model = ?"
_SELECT = f"SELECT histogram FROM rollups {_WHERE}"
_DELETE_EMPTY = f"DELETE FROM rollups {_WHERE} AND count = 0"
_UPSERT = f"""
INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
  count = max(count + excluded.count, 0),
  errors = max(errors + excluded.errors, 0),
  duration_ns = max(0, min(duration_ns + excluded.duration_ns, {SUM_MAX})),
  histogram = excluded.histogram,
  input_tokens = max(0, min(input_tokens + excluded.input_tokens, {SUM_MAX})),
  output_tokens = max(0, min(output_tokens + excluded.output_tokens, {SUM_MAX})),
  cache_read_tokens = max(0, min(cache_read_tokens + excluded.cache_read_tokens, {SUM_MAX})),
  cache_write_tokens = max(0, min(cache_write_tokens + excluded.cache_write_tokens, {SUM_MAX}))
"""
