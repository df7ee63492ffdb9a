"""Runs by the hour: what the last days looked like, from the runs themselves.

Rollups know days only, and stay for ever; hours are asked of the runs that are still there.
Read-only and bounded: the newest runs of a time, and their model calls while those are few.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from vestige.store.sqlite.ingest.rollups import bucket
from vestige.store.sqlite.read.reports import TOKENS_OF_SPANS, TOLD_ABOVE, ModelSum, Sum
from vestige.store.sqlite.read.run_loader import WORTH_SHOWING

HOUR_NS: Final = 3_600 * 10**9
RUNS_MAX: Final = 200_000
"""Runs that are added up, the newest."""

SPANS_MAX: Final = 200_000
"""Spans among which model calls are looked for; above it, what they cost is not told."""


def sum_hours(connection: sqlite3.Connection, since_ns: int) -> dict[int, Sum]:
    """By hours since the epoch."""
    found: dict[int, Sum] = {}
    for started, outcome, duration, given, made in connection.execute(_RUNS, (since_ns, RUNS_MAX)):
        hour = started // HOUR_NS
        total = found.setdefault(hour, Sum(str(hour)))
        total.count += 1
        total.errors += outcome not in ("ok", "running")
        total.input_tokens += given
        total.output_tokens += made
        if duration is not None:
            total.duration_ns += duration
            total.histogram[bucket(duration)] += 1
    return found


def sum_hour_models(connection: sqlite3.Connection, since_ns: int) -> list[ModelSum] | None:
    """Model calls by hour and model; None: too many to look through."""
    (spans,) = connection.execute(
        "SELECT coalesce(sum(span_count), 0) FROM runs WHERE started_ns >= ?", (since_ns,)
    ).fetchone()
    if spans > SPANS_MAX:
        return None
    rows = connection.execute(_MODELS.format(HOUR_NS, TOKENS_OF_SPANS, TOLD_ABOVE), (since_ns,))
    return [ModelSum(str(hour), str(model), count, *tokens) for hour, model, count, *tokens in rows]


_RUNS = f"""
SELECT r.started_ns, r.outcome, r.duration_ns, r.input_tokens, r.output_tokens FROM runs r
WHERE r.started_ns >= ? AND {WORTH_SHOWING}
ORDER BY r.started_ns DESC LIMIT ?
"""
_MODELS = """
SELECT r.started_ns / {}, coalesce(json_extract(s.attributes, '$.model'), ''), count(*),
  {}
FROM runs r JOIN spans s ON s.run = r.id
  LEFT JOIN spans o ON o.span_id = s.parent_id AND o.run = s.run AND o.type = 'llm'
WHERE r.started_ns >= ? AND (r.input_tokens > 0 OR r.output_tokens > 0) AND s.type = 'llm'
  AND {} IS NULL
GROUP BY 1, 2
"""
