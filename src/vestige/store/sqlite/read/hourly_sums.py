"""Sums of runs by hour, from the runs that are still stored.

Rollups are permanent, but have days only. These sums are bounded: they include the newest
runs, and their model calls if those are few.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from vestige.record.run import NOT_FAILED
from vestige.store.histogram import bucket
from vestige.store.interface.stats import ModelSum, Sum
from vestige.store.sqlite.ingest.batch_rows import IS_MODEL_CALL
from vestige.store.sqlite.read.run_loader import WORTH_SHOWING
from vestige.store.sqlite.read.stats import OUTER_USAGE, TOKENS_OF_SPANS

HOUR_NS: Final = 3_600 * 10**9
RUNS_MAX: Final = 200_000
"""The number of runs that are summed, the newest."""

SPANS_MAX: Final = 200_000
"""Runs with more spans in total are not searched for model calls, so their cost is unknown."""


def sum_hours(connection: sqlite3.Connection, since_ns: int) -> dict[int, Sum]:
    """Sum runs by the hour since the epoch."""
    sums: dict[int, Sum] = {}
    rows = connection.execute(_RUNS, (since_ns, RUNS_MAX))
    for started_ns, outcome, duration_ns, input_tokens, output_tokens in rows:
        hour = started_ns // HOUR_NS
        total = sums.setdefault(hour, Sum(str(hour)))
        total.count += 1
        total.errors += outcome not in NOT_FAILED
        total.input_tokens += input_tokens
        total.output_tokens += output_tokens
        if duration_ns is not None:
            total.duration_ns += duration_ns
            total.histogram[bucket(duration_ns)] += 1
    return sums


def sum_hour_models(connection: sqlite3.Connection, since_ns: int) -> list[ModelSum] | None:
    """Sum model calls by hour and model. Return None if there are too many spans."""
    (spans,) = connection.execute(
        "SELECT coalesce(sum(span_count), 0) FROM runs WHERE started_ns >= ?", (since_ns,)
    ).fetchone()
    if spans > SPANS_MAX:
        return None
    rows = connection.execute(
        _MODELS.format(HOUR_NS, TOKENS_OF_SPANS, IS_MODEL_CALL, OUTER_USAGE), (since_ns,)
    )
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
  LEFT JOIN spans o ON o.span_id = s.parent_id AND o.run = s.run AND o.type = s.type
WHERE r.started_ns >= ? AND (r.input_tokens > 0 OR r.output_tokens > 0) AND s.{}
  AND {} IS NULL
GROUP BY 1, 2
"""
