"""The SQL of `stats`, `compare` and `cost`, and of the runs that `diff` compares.

Small read-only functions. Each is bounded by a LIMIT, or reads only the rollups, which stay
small (`rollups.NAMES_MAX` per day) with any number of spans.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from vestige.errors import UsageError
from vestige.record.external_seq import voice
from vestige.record.run import PARTIAL, put_in_order
from vestige.record.types import OWN_COMPONENT
from vestige.store.protocol import Store
from vestige.store.sqlite.ingest.rollups import bucket
from vestige.store.sqlite.read.run_loader import WORTH_SHOWING

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_histograms = msgspec.json.Decoder(list[dict[int, int]]).decode

BY: Final[dict[str, tuple[str, str]]] = {
    # SQL of the group, and of the condition on rows
    "name": ("type || ' ' || name", "type <> 'process'"),
    "model": ("model", "type = 'llm'"),
    "tool": ("name", "type = 'tool'"),
    "component": ("component", "1"),
    "type": ("type", "1"),
    "day": ("day", "type = 'run'"),
}
"""How rollups can be grouped. A day counts runs; its tokens are those of its model calls."""


TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _sum_sql(value: str) -> str:
    """Return SQL for a sum of integers. `sum` would raise if one run has absurdly large values."""
    return f"CAST(total({value}) AS INTEGER)"


TOKENS_OF_SPANS: Final = ", ".join(
    _sum_sql(f"json_extract(s.attributes, '$.{name}')") for name in TOKENS
)
"""The sums of all kinds of tokens of the spans `s`."""

USAGE_KEYS: Final = ("input_tokens", "output_tokens", "cost_usd")
"""Attributes with which a model call reports its usage."""

_USAGES: Final = ", ".join(f"json_extract(o.attributes, '$.{name}')" for name in USAGE_KEYS)
OUTER_USAGE: Final = f"coalesce({_USAGES})"
"""The usage of the model call `o` that contains another. If it is not NULL, both are one call."""

SPANS_COUNTED_MAX: Final = 200_000
"""Spans of the latest runs that are counted for a ranking, which takes a few 100 ms."""


def connection_of(store: Store) -> sqlite3.Connection:
    """Return the connection of a SQLite store."""
    connection = getattr(store, "connection", None) or getattr(store, "_connection", None)
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError("this command needs a SQLite store. Open a data directory or a file.")
    return connection


@dataclass(slots=True)
class Sum:
    """The sums of one group."""

    key: str
    count: int = 0
    errors: int = 0
    duration_ns: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelSum:
    """The tokens of a group's calls to one model, from which its cost is computed."""

    key: str
    model: str
    count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


def sum_model_calls(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> Iterator[tuple[ModelSum, float | None]]:
    """Yield sums of model calls by run and model, with the cost if the program recorded it.

    Calls with a recorded cost are summed separately from the others. A call inside another
    that has usage (an HTTP call inside a client's span) is the same call, and counts once.
    """
    marks = ", ".join("?" * len(run_ids))
    rows = connection.execute(
        f"""
        SELECT r.run_id, coalesce(json_extract(s.attributes, '$.model'), ''), count(*),
          {TOKENS_OF_SPANS}, sum(CAST(json_extract(s.attributes, '$.cost_usd') AS REAL))
        FROM spans s JOIN runs r ON r.id = s.run
          LEFT JOIN spans o ON o.span_id = s.parent_id AND o.run = s.run AND o.type = 'llm'
        WHERE r.run_id IN ({marks}) AND s.type = 'llm' AND s.attributes IS NOT NULL
          AND (r.input_tokens > 0 OR r.output_tokens > 0)
          AND {OUTER_USAGE} IS NULL
        GROUP BY 1, 2, json_extract(s.attributes, '$.cost_usd') IS NULL
        """,
        list(run_ids),
    )
    for run_id, model, count, *tokens, recorded in rows:
        cost = float(recorded) if isinstance(recorded, (int, float)) else None
        yield ModelSum(run_id, str(model), count, *tokens), cost


def sum_rollups(connection: sqlite3.Connection, by: str, since_day: str | None) -> list[Sum]:
    """Sum the rollups by a group of `BY`."""
    column, where = BY[by]
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
        total.errors += outcome not in ("ok", "running")
        if duration_ns is not None:
            total.duration_ns += duration_ns
            total.histogram[bucket(duration_ns)] += 1


def sum_models(connection: sqlite3.Connection, by: str, since_day: str | None) -> list[ModelSum]:
    """Sum tokens by group and model. Only model calls count, because outer spans repeat them."""
    column = BY[by][0]
    if by == "tool":
        return []
    rows = connection.execute(
        f"SELECT {column}, model, sum(count), {', '.join(map(_sum_sql, TOKENS))}"
        " FROM rollups WHERE type = 'llm' AND day >= ? GROUP BY 1, 2 ORDER BY 1, 2",
        (since_day or "",),
    )
    return [ModelSum(*row) for row in rows]


def first_day(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT min(day) FROM rollups").fetchone()
    return row[0] if row else None


# --- runs to compare with -----------------------------------------------------------------------


def find_last_good(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return the last successful run of the same name: before this one, or else after it."""
    row = connection.execute(_LAST_GOOD, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_run_before(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return the previous run of the same conversation, or else of the same name."""
    row = connection.execute(_RUN_BEFORE, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_span_before(
    connection: sqlite3.Connection, run_id: str, type: str, name: str
) -> tuple[str, str] | None:
    """Return the run and span id of the last such span in earlier runs of the conversation."""
    found: tuple[str, str] | None = connection.execute(
        _SPAN_BEFORE, {"run": run_id, "type": type, "name": name}
    ).fetchone()
    return found


_LAST_GOOD = """
SELECT g.run_id FROM runs r JOIN runs g ON g.name = r.name AND g.id <> r.id AND g.tenant = r.tenant
WHERE r.run_id = :run AND g.outcome = 'ok' AND g.implicit = r.implicit
ORDER BY g.started_ns > r.started_ns, g.started_ns DESC, g.id DESC LIMIT 1
"""
_RUN_BEFORE = """
SELECT g.run_id FROM runs r
JOIN runs g ON (g.conversation_id = r.conversation_id OR g.name = r.name) AND g.id <> r.id
  AND g.tenant = r.tenant
WHERE r.run_id = :run AND g.implicit = r.implicit
  AND (g.started_ns < r.started_ns OR (g.started_ns = r.started_ns AND g.id < r.id))
ORDER BY g.conversation_id IS NOT r.conversation_id OR r.conversation_id IS NULL,
  g.started_ns DESC, g.id DESC LIMIT 1
"""
_SPAN_BEFORE = """
SELECT g.run_id, s.span_id FROM runs r
JOIN runs g ON g.conversation_id = r.conversation_id AND g.started_ns < r.started_ns
  AND g.tenant = r.tenant
JOIN spans s ON s.run = g.id
WHERE r.run_id = :run AND s.type = :type AND s.name = :name
ORDER BY g.started_ns DESC, s.number DESC LIMIT 1
"""


# --- groups of runs ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """The fields of a span that a comparison of groups needs."""

    run_id: str
    type: str
    name: str
    component: str
    status: str | None
    attributes: dict[str, Any]
    output_body: int | None


def read_spans(
    connection: sqlite3.Connection, run_ids: Sequence[str], spans_max: int
) -> Iterator[SpanFacts]:
    """Yield the first spans of each run, in the order in which they were stored."""
    for run_id in run_ids:
        rows = connection.execute(
            "SELECT s.type, s.name, s.component, s.status, s.attributes, s.output_body"
            " FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = ? ORDER BY s.id LIMIT ?",
            (run_id, spans_max),
        )
        for span_type, name, component, status, text, body in rows:
            attributes = _decode(text) if text else {}
            yield SpanFacts(run_id, span_type, name, component, status, attributes, body)


@dataclass(frozen=True, slots=True)
class LatestCall:
    """A run with its number of model calls, and the request body of the last one."""

    run_id: str
    outcome: str
    turns: int
    body: int | None
    size_bytes: int


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


def read_assemblies(
    connection: sqlite3.Connection, run_ids: Iterable[str], assemblies_max: int
) -> list[tuple[str, int]]:
    """Return the run and body ids of prompt segments, the latest first."""
    rows = connection.execute(
        "SELECT r.run_id, s.output_body FROM json_each(?) w JOIN runs r ON r.run_id = w.value"
        " JOIN spans s ON s.run = r.id"
        " WHERE s.type = 'prompt.assembly' AND s.output_body IS NOT NULL"
        " ORDER BY s.id DESC LIMIT ?",
        (msgspec.json.encode(list(run_ids)).decode(), assemblies_max),
    )
    return [(run_id, body) for run_id, body in rows]


def find_partial(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """Return the runs whose root span marks them as incomplete."""
    return {
        run_id
        for run_id in run_ids
        if connection.execute(_PARTIAL, (run_id, f'%"{PARTIAL}":%')).fetchone()
    }


_PARTIAL = """
SELECT 1 FROM runs r JOIN spans s ON s.run = r.id
WHERE r.run_id = ? AND s.parent_id IS NULL AND s.type = 'run' AND s.attributes LIKE ?
"""


def read_ancestry(
    connection: sqlite3.Connection, run_id: str, span_ids: Sequence[str]
) -> list[tuple[str, str | None, str]]:
    """Return the id, parent id and type of spans and their ancestors, in the order of start."""
    rows = connection.execute(
        _ANCESTRY, {"run": run_id, "spans": msgspec.json.encode(list(span_ids)).decode()}
    ).fetchall()
    ordered = put_in_order(
        rows,
        lambda row: voice(row[2], row[0], row[3]),
        lambda row: row[3] or 0,
        lambda row: row[4],
    )
    return [(row[0], row[1], row[5]) for row in ordered]


_ANCESTRY = """
WITH RECURSIVE target(run) AS (SELECT id FROM runs WHERE run_id = :run),
up(span_id) AS (
  SELECT value FROM json_each(:spans)
  UNION SELECT s.parent_id FROM up JOIN target
  JOIN spans s ON s.span_id = up.span_id AND s.run = target.run WHERE s.parent_id IS NOT NULL)
SELECT s.span_id, s.parent_id, w.writer, s.seq, s.started_ns, s.type
FROM up JOIN target JOIN spans s ON s.span_id = up.span_id AND s.run = target.run
JOIN writers w ON w.id = s.writer
"""


def sum_body_bytes(connection: sqlite3.Connection, run_id: str) -> int:
    """Return the uncompressed size of all bodies of a run's spans."""
    query = """
    SELECT CAST(total(s.input_bytes) + total(s.output_bytes) AS INTEGER)
    FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = ?
    """
    size: int = connection.execute(query, (run_id,)).fetchone()[0]
    return size
