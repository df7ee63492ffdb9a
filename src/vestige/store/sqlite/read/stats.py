"""The SQL of `stats`, `trends` and `cost`: sums of rollups, model calls and tools.

Small read-only functions. Each is bounded by a LIMIT, or reads only the rollups, which stay
small (`rollups.NAMES_MAX` per day) with any number of spans.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from vestige.record.run import NOT_FAILED
from vestige.record.types import OWN_COMPONENT
from vestige.store.histogram import bucket
from vestige.store.interface.stats import USAGE_KEYS, LatestCall, ModelSum, RecordedSum, Sum
from vestige.store.sqlite.ingest.batch_rows import IS_MODEL_CALL
from vestige.store.sqlite.read.run_loader import WORTH_SHOWING

_decode_histograms = msgspec.json.Decoder(list[dict[int, int]]).decode

_GROUPS: Final[dict[str, tuple[str, str]]] = {
    # SQL of the group, and of the condition on rows
    "name": ("type || ' ' || name", "type <> 'process'"),
    "model": ("model", IS_MODEL_CALL),
    "tool": ("name", "type = 'tool'"),
    "component": ("component", "1"),
    "type": ("type", "1"),
    "day": ("day", "type = 'run'"),
}

TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _sum_sql(value: str) -> str:
    """Return SQL for a sum of integers. `sum` would raise if one run has absurdly large values."""
    return f"CAST(total({value}) AS INTEGER)"


TOKENS_OF_SPANS: Final = ", ".join(
    _sum_sql(f"json_extract(s.attributes, '$.{name}')") for name in TOKENS
)
"""The sums of all kinds of tokens of the spans `s`."""


_USAGES: Final = ", ".join(f"json_extract(o.attributes, '$.{name}')" for name in USAGE_KEYS)
OUTER_USAGE: Final = f"coalesce({_USAGES})"
"""The usage of the model call `o` that contains another. If it is not NULL, both are one call."""

SPANS_COUNTED_MAX: Final = 200_000
"""Spans of the latest runs that are counted for a ranking, which takes a few 100 ms."""


def sum_model_calls(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[RecordedSum]:
    marks = ", ".join("?" * len(run_ids))
    rows = connection.execute(
        f"""
        SELECT r.run_id, coalesce(json_extract(s.attributes, '$.model'), ''), count(*),
          {TOKENS_OF_SPANS}, sum(CAST(json_extract(s.attributes, '$.cost_usd') AS REAL))
        FROM spans s JOIN runs r ON r.id = s.run
          LEFT JOIN spans o ON o.span_id = s.parent_id AND o.run = s.run AND o.type = s.type
        WHERE r.run_id IN ({marks}) AND s.{IS_MODEL_CALL} AND s.attributes IS NOT NULL
          AND (r.input_tokens > 0 OR r.output_tokens > 0)
          AND {OUTER_USAGE} IS NULL
        GROUP BY 1, 2, json_extract(s.attributes, '$.cost_usd') IS NULL
        """,
        list(run_ids),
    )
    return [
        RecordedSum(
            ModelSum(run_id, str(model), count, *tokens),
            float(recorded) if isinstance(recorded, (int, float)) else None,
        )
        for run_id, model, count, *tokens, recorded in rows
    ]


def sum_rollups(connection: sqlite3.Connection, by: str, since_day: str | None) -> list[Sum]:
    """Sum the rollups by a group of `BY`."""
    column, where = _GROUPS[by]
    rows = connection.execute(
        f"SELECT {column}, sum(count), sum(errors), {_sum_sql('duration_ns')},"
        " '[' || group_concat(histogram) || ']'"
        f" FROM rollups WHERE {where} AND day >= ? AND component <> ? GROUP BY 1 ORDER BY 1",
        (since_day or "", "" if by in ("component", "type") else OWN_COMPONENT),
    )
    found = {}
    for key, count, errors, duration_ns, histograms in rows:
        total = found[key] = Sum(key, count, errors, duration_ns)
        for histogram in _decode_histograms(histograms):
            for number, times in histogram.items():
                total.histogram[number] += times
    if by == "day":
        _add_process_runs(connection, since_day or "", found)
    for part in sum_models(connection, by, since_day):
        total = found.setdefault(part.key, Sum(part.key))
        total.input_tokens += part.input_tokens
        total.output_tokens += part.output_tokens
        total.cache_read_tokens += part.cache_read_tokens
        total.cache_write_tokens += part.cache_write_tokens
    return [found[key] for key in sorted(found)]


def _add_process_runs(connection: sqlite3.Connection, since_day: str, sums: dict[str, Sum]) -> None:
    """Add the runs of processes that have content, or a name from `vestige run --name`.

    Rollups cannot distinguish them from runs of other processes, so they are counted from the
    runs that are still stored.
    """
    rows = connection.execute(
        "SELECT date(r.started_ns / 1000000000, 'unixepoch') AS day, r.outcome, r.duration_ns"
        f" FROM runs r WHERE (r.implicit OR r.component = ?) AND {WORTH_SHOWING} AND day >= ?",
        (OWN_COMPONENT, since_day),
    )
    for day, outcome, duration_ns in rows:
        total = sums.setdefault(day, Sum(day))
        total.count += 1
        total.errors += outcome not in NOT_FAILED
        if duration_ns is not None:
            total.duration_ns += duration_ns
            total.histogram[bucket(duration_ns)] += 1


def sum_models(connection: sqlite3.Connection, by: str, since_day: str | None) -> list[ModelSum]:
    """Sum tokens by group and model. Only model calls count, because outer spans repeat them."""
    column = _GROUPS[by][0]
    if by == "tool":
        return []
    rows = connection.execute(
        f"SELECT {column}, model, sum(count), {', '.join(map(_sum_sql, TOKENS))}"
        f" FROM rollups WHERE {IS_MODEL_CALL} AND day >= ? GROUP BY 1, 2 ORDER BY 1, 2",
        (since_day or "",),
    )
    return [ModelSum(*row) for row in rows]


def find_first_day(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT min(day) FROM rollups").fetchone()
    return row[0] if row else None


def read_latest_calls(
    connection: sqlite3.Connection, since_ns: int | None, runs_max: int
) -> list[LatestCall]:
    """Return the latest runs with model calls, newest first, and fewer if they are very long."""
    rows = connection.execute(_LATEST_CALLS, (since_ns or 0, runs_max, SPANS_COUNTED_MAX))
    return [
        LatestCall(run_id, outcome, turns, body, size or 0)
        for run_id, outcome, turns, body, size in rows
        if turns
    ]


_LATEST_CALLS = """
WITH newest AS (
  SELECT id, run_id, outcome, started_ns, span_count FROM runs
  WHERE started_ns >= ? AND own_count > 0 ORDER BY started_ns DESC, id DESC LIMIT ?
), summed AS (
  SELECT *, sum(span_count) OVER (ORDER BY started_ns DESC, id DESC) - span_count AS before
  FROM newest
), latest AS (
  SELECT * FROM summed WHERE before < ?
), calls AS (
  SELECT l.id AS run, count(s.id) AS turns,
    max(s.id) FILTER (WHERE s.input_body IS NOT NULL) AS last
  FROM latest l LEFT JOIN spans s ON s.run = l.id AND s.type = 'llm' GROUP BY l.id
)
SELECT l.run_id, l.outcome, c.turns, s.input_body, s.input_bytes
FROM latest l JOIN calls c ON c.run = l.id LEFT JOIN spans s ON s.id = c.last
ORDER BY l.started_ns DESC, l.id DESC
"""


def count_tool_calls(
    connection: sqlite3.Connection, run_ids: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return the calls and the successful calls of each tool. Open calls count as calls."""
    rows = connection.execute(
        "SELECT s.name, count(*), sum(s.status IS 'ok') FROM spans s"
        " JOIN runs r ON r.id = s.run JOIN json_each(?) w ON w.value = r.run_id"
        " WHERE s.type = 'tool' GROUP BY s.name ORDER BY s.name",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    return {name: (count, ok) for name, count, ok in rows}


def read_prompt_assemblies(
    connection: sqlite3.Connection, run_ids: Iterable[str], limit: int
) -> list[int]:
    rows = connection.execute(
        "SELECT s.output_body FROM json_each(?) w JOIN runs r ON r.run_id = w.value"
        " JOIN spans s ON s.run = r.id"
        " WHERE s.type = 'prompt.assembly' AND s.output_body IS NOT NULL"
        " ORDER BY s.id DESC LIMIT ?",
        (msgspec.json.encode(list(run_ids)).decode(), limit),
    )
    return [body for (body,) in rows]


def read_responses(
    connection: sqlite3.Connection, run_ids: Iterable[str], limit: int, size_max: int
) -> list[int]:
    """Return the bodies of model responses; a client's span around a call is not counted."""
    rows = connection.execute(
        _RESPONSES, (msgspec.json.encode(list(run_ids)).decode(), size_max, limit)
    )
    return [body for (body,) in rows]


_RESPONSES = """
SELECT s.output_body FROM json_each(?) w JOIN runs r ON r.run_id = w.value
JOIN spans s ON s.run = r.id LEFT JOIN spans p ON p.span_id = s.parent_id AND p.run = s.run
WHERE s.type = 'llm' AND s.output_body IS NOT NULL AND s.output_bytes <= ?
  AND (p.id IS NULL OR p.type <> 'llm' OR p.output_body IS NULL)
ORDER BY s.id DESC LIMIT ?
"""
