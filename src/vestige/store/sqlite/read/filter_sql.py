"""Translate the terms of a run filter to SQL.

Cheap terms use columns of a run. The others search its spans, logs or findings. They are
evaluated for a bounded number of the newest runs (`find_bound`).

Elsewhere: the language, query/search/filters.py. Cost is not a column, so it is computed in
query/search/run_list.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from vestige.store.protocol import RunSort, Term
from vestige.store.sqlite.ingest.batch_rows import IS_MODEL_CALL

RUNS_SEARCHED_MAX: Final = 20_000
ROWS_SEARCHED_MAX: Final = 500_000
"""Runs, and their spans and logs, that one search reads, in about half a second."""

_NUMBERS: Final = {
    "started_ns": "r.started_ns",
    "tokens": "r.input_tokens + r.output_tokens",
    "duration": "coalesce(r.duration_ns, r.last_ns - r.started_ns)",
    "spans": "r.span_count",
    "errors": "r.error_count",
    "logs": "r.log_count",
}
SORTS: Final[dict[RunSort, str]] = {
    "started": "r.started_ns",
    "duration": _NUMBERS["duration"],
    "tokens": _NUMBERS["tokens"],
    "spans": _NUMBERS["spans"],
    "errors": _NUMBERS["errors"],
    "name": "lower(coalesce(r.name, ''))",
    "outcome": "r.outcome",
}
_IS: Final = {"failed": "r.outcome NOT IN ('ok', 'running', 'unknown')", "pinned": "r.pinned = 1"}
_HAS: Final = {
    "finding": "EXISTS (SELECT 1 FROM findings f WHERE f.run = r.id AND f.finding IS NOT NULL)",
    "conversation": "r.conversation_id IS NOT NULL",
    "error": "r.error_count > 0",
    "cost": "(r.input_tokens > 0 OR r.output_tokens > 0)",
    "note": "EXISTS (SELECT 1 FROM notes n WHERE n.run = r.id)",
}
_TEXTS: Final = {
    "name": r"coalesce(r.name, '') LIKE ? ESCAPE '\'",
    "component": r"coalesce(r.component, '') LIKE ? ESCAPE '\'",
    "note": r"EXISTS (SELECT 1 FROM notes n WHERE n.run = r.id AND n.text LIKE ? ESCAPE '\')",
}
_TAG: Final = "EXISTS (SELECT 1 FROM notes n WHERE n.run = r.id AND lower(n.text) || ' ' GLOB ?)"
_TAG_END: Final = "[^-a-z0-9_\u00c0-\u1fff\u3040-\ud7ff]"
"""The end of a tag: no letter, digit, `_` or `-`. `lower` of SQLite knows ASCII only."""
_INSIDE: Final = {
    "tool": "EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.type = 'tool'"
    r" AND s.name LIKE ? ESCAPE '\')",
    "model": f"EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.{IS_MODEL_CALL}"
    r" AND json_extract(s.attributes, '$.model') LIKE ? ESCAPE '\')",
    "check": "EXISTS (SELECT 1 FROM findings f WHERE f.run = r.id AND f.finding IS NOT NULL"
    r" AND (f.check_name LIKE ? ESCAPE '\'"
    r" OR json_extract(f.finding, '$.kind') LIKE ? ESCAPE '\'))",
    "text": r"""(coalesce(r.name, '') LIKE ? ESCAPE '\'
  OR EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id
    AND (s.name LIKE ? ESCAPE '\' OR s.attributes LIKE ? ESCAPE '\'))
  OR EXISTS (SELECT 1 FROM logs l WHERE l.run = r.id
    AND (l.message LIKE ? ESCAPE '\' OR l.attributes LIKE ? ESCAPE '\')))""",
}
_TYPE: Final = "EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id AND s.type = ?)"

Condition = tuple[str, list[Any]]


def is_cheap(term: Term) -> bool:
    """Return whether a term needs only the row of the run."""
    return term.key not in _INSIDE and term.key != "type"


def build_condition(term: Term) -> Condition:
    sql, values = _build_positive(term)
    return (f"NOT ({sql})" if term.negated else sql), values


def _build_positive(term: Term) -> Condition:
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
    if key == "tag":
        return _TAG, [f"*#{value}{_TAG_END}*"]
    if key == "run":
        return _build_run_ids(value)
    if key == "words":
        return f"r.run_id IN ({','.join('?' * len(term.also))})", [*term.also]
    sql = _TEXTS.get(key) or _INSIDE[key]
    values: list[Any] = [build_pattern(value)] * sql.count("?")
    if term.also:
        marks = ",".join("?" * len(term.also))
        return f"({sql} OR r.run_id IN ({marks}))", [*values, *term.also]
    return sql, values


def _build_run_ids(ids: Sequence[str]) -> Condition:
    tests: list[str] = []
    values: list[Any] = []
    for text in ids:
        if text.startswith("r") and text[1:].isdecimal():
            tests.append("r.id = ?")
            values.append(int(text[1:][:18]))
        else:
            tests.append("r.run_id >= ? AND r.run_id < ?")
            values += [text, text + "\U0010ffff"]
    return f"({' OR '.join(tests)})", values


def build_pattern(text: str) -> str:
    """Return a LIKE pattern for values that contain a text."""
    text = text.encode(errors="replace").decode()
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def find_bound(
    connection: sqlite3.Connection, where: str, values: Sequence[Any]
) -> tuple[int, int, int] | None:
    """Return the last run to search: (started_ns, id, number of runs). None: search all runs."""
    row: tuple[int, int, int, int] | None = connection.execute(
        _BOUND.format(where),
        (*values, RUNS_SEARCHED_MAX + 1, RUNS_SEARCHED_MAX, ROWS_SEARCHED_MAX),
    ).fetchone()
    return None if row is None or row[2] == row[3] else row[:3]


_BOUND = """
WITH newest AS (
  SELECT r.id, r.started_ns, r.span_count + r.log_count AS weight FROM runs r WHERE {}
  ORDER BY r.started_ns DESC, r.id DESC LIMIT ?
), counted AS (
  SELECT started_ns, id, row_number() OVER latest AS position,
    sum(weight) OVER latest - weight AS before
  FROM newest WINDOW latest AS (ORDER BY started_ns DESC, id DESC)
)
SELECT started_ns, id, position, (SELECT count(*) FROM newest) FROM counted
WHERE position <= ? AND (before < ? OR position = 1) ORDER BY position DESC LIMIT 1
"""
