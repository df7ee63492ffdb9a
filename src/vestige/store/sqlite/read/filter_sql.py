"""What the terms of a filter mean for the rows of a store, as SQL.

Cheap terms are columns of a run. The others look into its spans, log lines or findings: those
are asked of so many runs only, the newest, and the answer says where it stopped (`window`).

Elsewhere: the language, query/search/filters.py. Money is no column: query/search/run_list.py asks for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from vestige.store.protocol import Term

RUNS_LOOKED_AT_MAX: Final = 20_000
ROWS_LOOKED_AT_MAX: Final = 500_000
"""Runs, and their spans and lines, that one answer looks into: about half a second."""

_NUMBERS: Final = {
    "started_ns": "r.started_ns",
    "tokens": "r.input_tokens + r.output_tokens",
    "duration": "coalesce(r.duration_ns, r.last_ns - r.started_ns)",
    "spans": "r.span_count",
    "errors": "r.error_count",
    "logs": "r.log_count",
}
_IS: Final = {"failed": "r.outcome NOT IN ('ok', 'running')", "pinned": "r.pinned = 1"}
_HAS: Final = {
    "finding": "EXISTS (SELECT 1 FROM findings f WHERE f.run = r.id AND f.finding IS NOT NULL)",
    "conversation": "r.conversation_id IS NOT NULL",
    "error": "r.error_count > 0",
    "cost": "(r.input_tokens > 0 OR r.output_tokens > 0)",
}
_TEXTS: Final = {
    "name": r"coalesce(r.name, '') LIKE ? ESCAPE '\'",
    "component": r"coalesce(r.component, '') LIKE ? ESCAPE '\'",
}
_INSIDE: Final = {
    "tool": "EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.type = 'tool'"
    r" AND s.name LIKE ? ESCAPE '\')",
    "model": "EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.type = 'llm'"
    r" AND json_extract(s.attributes, '$.model') LIKE ? ESCAPE '\')",
    "check": "EXISTS (SELECT 1 FROM findings f WHERE f.run = r.id AND f.finding IS NOT NULL"
    r" AND (f.check_name LIKE ? ESCAPE '\' OR json_extract(f.finding, '$.kind') LIKE ? ESCAPE '\'))",
    "text": r"""(coalesce(r.name, '') LIKE ? ESCAPE '\'
  OR EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id
    AND (s.name LIKE ? ESCAPE '\' OR s.attributes LIKE ? ESCAPE '\'))
  OR EXISTS (SELECT 1 FROM logs l WHERE l.run = r.id AND l.message LIKE ? ESCAPE '\'))""",
}
_TYPE: Final = "EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.type = ?)"

Condition = tuple[str, list[Any]]


def is_cheap(term: Term) -> bool:
    """Whether the run's own row says it."""
    return term.key not in _INSIDE and term.key != "type"


def condition(term: Term) -> Condition:
    sql, values = _positive(term)
    return (f"NOT ({sql})" if term.negated else sql), values


def _positive(term: Term) -> Condition:
    key, value = term.key, term.value
    if key in _NUMBERS:
        assert term.op in (">", "<", ">=", "<=", "=")
        return f"{_NUMBERS[key]} {term.op} ?", [value]
    if key == "is":
        return (_IS[value], []) if value in _IS else ("r.outcome = ?", [value])
    if key == "has":
        return _HAS[value], []
    if key == "conversation":
        return "r.conversation_id IS ?", [value]
    if key == "type":
        return _TYPE, [value]
    sql = _TEXTS.get(key) or _INSIDE[key]
    values: list[Any] = [contains(value)] * sql.count("?")
    if term.also:
        marks = ",".join("?" * len(term.also))
        return f"({sql} OR r.run_id IN ({marks}))", [*values, *term.also]
    return sql, values


def contains(text: str) -> str:
    """For LIKE, upper or lower case."""
    text = text.encode(errors="replace").decode()
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def window(
    connection: sqlite3.Connection, where: str, values: Sequence[Any]
) -> tuple[int, int, int] | None:
    """The last run that may be looked into: (started, id, how many so far); None: all may be."""
    row: tuple[int, int, int, int] | None = connection.execute(
        _WINDOW.format(where),
        (*values, RUNS_LOOKED_AT_MAX + 1, RUNS_LOOKED_AT_MAX, ROWS_LOOKED_AT_MAX),
    ).fetchone()
    return None if row is None or row[2] == row[3] else row[:3]


_WINDOW = """
WITH newest AS (
  SELECT r.id, r.started_ns, r.span_count + r.log_count AS weight FROM runs r WHERE {}
  ORDER BY r.started_ns DESC, r.id DESC LIMIT ?
), counted AS (
  SELECT started_ns, id, row_number() OVER latest AS place,
    sum(weight) OVER latest - weight AS before
  FROM newest WINDOW latest AS (ORDER BY started_ns DESC, id DESC)
)
SELECT started_ns, id, place, (SELECT count(*) FROM newest) FROM counted
WHERE place <= ? AND (before < ? OR place = 1) ORDER BY place DESC LIMIT 1
"""
