"""The SQL that finds runs and spans to compare with, and the fields of their spans."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from vestige.record.otlp_sequence_numbers import order_group
from vestige.record.run import PARTIAL, put_in_order
from vestige.record.types import OWN_COMPONENT
from vestige.store.interface.spans import Ancestor, SpanFacts

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def find_last_good_run(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return the last successful run of the same name: before this one, or else after it."""
    row = connection.execute(_LAST_GOOD, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_previous_run(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return the previous run of the same conversation, or else of the same name."""
    row = connection.execute(_RUN_BEFORE, {"run": run_id}).fetchone()
    return row[0] if row else None


def find_previous_span(
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


def read_span_facts(
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


def find_partial_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
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
) -> list[Ancestor]:
    """Return the id, parent id and type of spans and their ancestors, in the order of start."""
    rows = connection.execute(
        _ANCESTRY, {"run": run_id, "spans": msgspec.json.encode(list(span_ids)).decode()}
    ).fetchall()
    ordered = put_in_order(
        rows,
        lambda row: order_group(row[2], row[0], row[3]),
        lambda row: row[3] or 0,
        lambda row: row[4],
    )
    return [Ancestor(row[0], row[1], row[5]) for row in ordered]


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


def read_debugging_hints(
    connection: sqlite3.Connection, run_ids: Sequence[str] | None, limit: int
) -> list[object]:
    where = ""
    values: list[object] = [OWN_COMPONENT]
    if run_ids is not None:
        where = " AND run IN (SELECT r.id FROM json_each(?) w JOIN runs r ON r.run_id = w.value)"
        values.append(msgspec.json.encode(list(run_ids)).decode())
    rows = connection.execute(_SURFACES.format(where=where), (*values, limit))
    return [row[0] for row in rows]


_SURFACES = """
SELECT json_extract(attributes, '$.surface') FROM logs
WHERE component = ? AND level = 'debug' AND json_type(attributes, '$.surface') NOT NULL{where}
ORDER BY time_ns DESC, id DESC LIMIT ?
"""
