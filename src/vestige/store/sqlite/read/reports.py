"""Reports: the SQL behind `stats`, `compare`, the ranking and the runs that `diff` looks up.

Small read-only functions over the store's connection. Each is bounded by a LIMIT or reads
the rollups only, which stay small (`rollups.NAMES_MAX` a day) however many spans there are.
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
    # what is grouped by, and of which rows
    "name": ("type || ' ' || name", "type <> 'process'"),
    "model": ("model", "type = 'llm'"),
    "tool": ("name", "type = 'tool'"),
    "component": ("component", "1"),
    "type": ("type", "1"),
    "day": ("day", "type = 'run'"),
}
"""A day counts runs; its tokens are those of the model calls of that day."""


TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _whole(value: str) -> str:
    """A sum of whole numbers, as SQL. `sum` would refuse to answer when one run's absurd numbers
    are more than it can hold, and so for all runs."""
    return f"CAST(total({value}) AS INTEGER)"


TOKENS_OF_SPANS: Final = ", ".join(
    _whole(f"json_extract(s.attributes, '$.{name}')") for name in TOKENS
)
"""Of spans `s`."""

TELLING: Final = ("input_tokens", "output_tokens", "cost_usd")
"""A model call that has one of these tells what it took."""

_TOLD: Final = ", ".join(f"json_extract(o.attributes, '$.{name}')" for name in TELLING)
TOLD_ABOVE: Final = f"coalesce({_TOLD})"
"""Of the model call `o` that another one stands in; not NULL: it is the same call, told twice."""

SPANS_COUNTED_MAX: Final = 200_000
"""Spans of the latest runs that are counted for a ranking: some tenths of a second."""


def connection_of(store: Store) -> sqlite3.Connection:
    """The connection that a SQLite store reads with."""
    connection = getattr(store, "connection", None) or getattr(store, "_connection", None)
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError("this question needs the embedded store. Open a home or a file.")
    return connection


@dataclass(slots=True)
class Sum:
    """What one group adds up to."""

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
    """A group's model calls to one model: what a price needs."""

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
    """The model calls of some runs, by run and model, those of which the program itself says what they
    cost apart from the others. A call inside another that tells what it took (a client's own span, and
    the wire's in it) is the same call, and counts once."""
    marks = ", ".join("?" * len(run_ids))
    rows = connection.execute(
        f"""
        SELECT r.run_id, coalesce(json_extract(s.attributes, '$.model'), ''), count(*),
          {TOKENS_OF_SPANS}, sum(CAST(json_extract(s.attributes, '$.cost_usd') AS REAL))
        FROM spans s JOIN runs r ON r.id = s.run
          LEFT JOIN spans o ON o.span_id = s.parent_id AND o.run = s.run AND o.type = 'llm'
        WHERE r.run_id IN ({marks}) AND s.type = 'llm' AND s.attributes IS NOT NULL
          AND (r.input_tokens > 0 OR r.output_tokens > 0)
          AND {TOLD_ABOVE} IS NULL
        GROUP BY 1, 2, json_extract(s.attributes, '$.cost_usd') IS NULL
        """,
        list(run_ids),
    )
    for run_id, model, count, *tokens, recorded in rows:
        cost = float(recorded) if isinstance(recorded, (int, float)) else None
        yield ModelSum(run_id, str(model), count, *tokens), cost


def sum_rollups(connection: sqlite3.Connection, by: str, since_day: str | None) -> list[Sum]:
    """Daily sums added up by a column."""
    column, where = BY[by]
    rows = connection.execute(
        f"SELECT {column}, sum(count), sum(errors), {_whole('duration_ns')},"
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
    """Runs that a program did not open itself, and that say something of it (or were given a name,
    by `vestige run --name`): as a list shows them.

    Rollups cannot tell them from those of mere processes, so they count while they are kept.
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
    """Tokens by group and model, of model calls alone: what wraps a call repeats its tokens."""
    column = BY[by][0]
    if by == "tool":
        return []
    rows = connection.execute(
        f"SELECT {column}, model, sum(count), {', '.join(map(_whole, TOKENS))}"
        " FROM rollups WHERE type = 'llm' AND day >= ? GROUP BY 1, 2 ORDER BY 1, 2",
        (since_day or "",),
    )
    return [ModelSum(*row) for row in rows]


def first_day(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT min(day) FROM rollups").fetchone()
    return row[0] if row else None


# --- runs that a diff looks up ------------------------------------------------------------------


def find_last_good(connection: sqlite3.Connection, run_id: str) -> str | None:
    """The last run of the same name that ended well: before this one, or else after it."""
    row = connection.execute(_LAST_GOOD, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_run_before(connection: sqlite3.Connection, run_id: str) -> str | None:
    """The run before: of the same conversation, or else of the same name."""
    row = connection.execute(_RUN_BEFORE, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_span_before(
    connection: sqlite3.Connection, run_id: str, type: str, name: str
) -> tuple[str, str] | None:
    """(run id, span id) of the last such span in the conversation's earlier runs."""
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
    """One span, as far as a comparison of groups looks at it."""

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
    """The first spans of each run, each run in the order in which they were taken in."""
    for run_id in run_ids:
        rows = connection.execute(
            "SELECT s.type, s.name, s.component, s.status, s.attributes, s.output_body"
            " FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = ? ORDER BY s.id LIMIT ?",
            (run_id, spans_max),
        )
        for kind, name, component, status, attributes, body in rows:
            known = _decode(attributes) if attributes else {}
            yield SpanFacts(run_id, kind, name, component, status, known, body)


@dataclass(frozen=True, slots=True)
class LatestCall:
    """A run, how many model calls it made, and the body of the last one's request."""

    run_id: str
    outcome: str
    turns: int
    body: int | None
    size_bytes: int


def read_latest_calls(
    connection: sqlite3.Connection, since_ns: int | None, runs_max: int
) -> list[LatestCall]:
    """The latest runs that made model calls, newest first; fewer where they are very long."""
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
  SELECT l.id AS run, count(s.id) AS turns, max(s.id) FILTER (WHERE s.input_body IS NOT NULL) AS last
  FROM latest l LEFT JOIN spans s ON s.run = l.id AND s.type = 'llm' GROUP BY l.id
)
SELECT l.run_id, l.outcome, c.turns, s.input_body, s.input_bytes
FROM latest l JOIN calls c ON c.run = l.id LEFT JOIN spans s ON s.id = c.last
ORDER BY l.started_ns DESC, l.id DESC
"""


def count_tool_calls(
    connection: sqlite3.Connection, run_ids: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """By tool: calls, and how many went well. Calls still open count as calls."""
    rows = connection.execute(
        "SELECT s.name, count(*), sum(s.status IS 'ok') FROM spans s"
        " JOIN runs r ON r.id = s.run JOIN json_each(?) wanted ON wanted.value = r.run_id"
        " WHERE s.type = 'tool' GROUP BY s.name ORDER BY s.name",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    return {name: (count, ok) for name, count, ok in rows}


def read_assemblies(
    connection: sqlite3.Connection, run_ids: Iterable[str], assemblies_max: int
) -> list[tuple[str, int]]:
    """(run id, body id) of prompts' segments, the latest first."""
    rows = connection.execute(
        "SELECT r.run_id, s.output_body FROM json_each(?) wanted JOIN runs r ON r.run_id = wanted.value"
        " JOIN spans s ON s.run = r.id WHERE s.type = 'prompt.assembly' AND s.output_body IS NOT NULL"
        " ORDER BY s.id DESC LIMIT ?",
        (msgspec.json.encode(list(run_ids)).decode(), assemblies_max),
    )
    return [(run_id, body) for run_id, body in rows]


def find_partial(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """Those of these runs that are not all here, as their root says."""
    return {
        run_id
        for run_id in run_ids
        if connection.execute(_PARTIAL, (run_id, f'%"{PARTIAL}":%')).fetchone()
    }


_PARTIAL = """
SELECT 1 FROM runs r JOIN spans s ON s.run = r.id
WHERE r.run_id = ? AND s.parent_id IS NULL AND s.type = 'run' AND s.attributes LIKE ?
"""


def find_places(
    connection: sqlite3.Connection, run_id: str, span_ids: Sequence[str]
) -> list[tuple[str, str | None, str]]:
    """These spans of a run and all they stand in, as they began: id, parent's id and type."""
    rows = connection.execute(
        _PLACES, {"run": run_id, "spans": msgspec.json.encode(list(span_ids)).decode()}
    ).fetchall()
    ordered = put_in_order(
        rows,
        lambda row: voice(row[2], row[0], row[3]),
        lambda row: row[3] or 0,
        lambda row: row[4],
    )
    return [(row[0], row[1], row[5]) for row in ordered]


_PLACES = """
WITH RECURSIVE wanted(run) AS (SELECT id FROM runs WHERE run_id = :run),
up(span_id) AS (
  SELECT value FROM json_each(:spans)
  UNION SELECT s.parent_id FROM up JOIN wanted JOIN spans s ON s.span_id = up.span_id AND s.run = wanted.run
  WHERE s.parent_id IS NOT NULL)
SELECT s.span_id, s.parent_id, w.writer, s.seq, s.started_ns, s.type
FROM up JOIN wanted JOIN spans s ON s.span_id = up.span_id AND s.run = wanted.run
JOIN writers w ON w.id = s.writer
"""


def body_bytes(connection: sqlite3.Connection, run_id: str) -> int:
    """How long the bodies of a run's spans are together, as they were."""
    query = """
    SELECT CAST(total(s.input_bytes) + total(s.output_bytes) AS INTEGER)
    FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = ?
    """
    found: int = connection.execute(query, (run_id,)).fetchone()[0]
    return found
