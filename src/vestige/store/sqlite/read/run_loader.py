"""Load runs from the tables: lists of runs, and single runs with their spans and logs.

Nothing here writes.

Elsewhere: rows that are written, store/sqlite/ingest/batch_rows.py; text and ids, search.py.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vestige.limits import SUM_MAX
from vestige.record.otlp_sequence_numbers import order_group
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Run, RunInfo, SpanInfo, in_order
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import OWN_COMPONENT
from vestige.store.protocol import ConversationInfo, RunFilter, RunPage, Term
from vestige.store.run_row import to_run_info
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, CanonicalIds
from vestige.store.sqlite.read import filter_sql

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def list_runs(
    connection: sqlite3.Connection, run_filter: RunFilter, tenant: str | None = None
) -> list[RunInfo]:
    return list(search_runs(connection, run_filter, tenant).runs)


def search_runs(
    connection: sqlite3.Connection, run_filter: RunFilter, tenant: str | None = None
) -> RunPage:
    """Return matching runs, newest first or as the filter sorts them.

    Terms that need the rows of runs search a bounded number of runs (filter_sql.py).
    `tenant` is the tenant to which the connection is restricted (tenant_views.py).
    """
    where, values = _build_conditions(run_filter)
    if tenant not in (None, DEFAULT_TENANT):
        # The condition is redundant. It makes SQLite use the index of the tenant's runs.
        where = f"r.tenant = ? AND r.tenant <> '{DEFAULT_TENANT}' AND {where}"
        values = [tenant, *values]
    slow = [
        filter_sql.build_condition(term)
        for term in run_filter.terms
        if not filter_sql.is_cheap(term)
    ]
    bound = filter_sql.find_bound(connection, where, values) if slow else None
    parts = [where, *(sql for sql, _ in slow)]
    slow_values = [value for _, term_values in slow for value in term_values]
    values += slow_values
    if bound is not None:
        parts.append("(r.started_ns, r.id) >= (?, ?)")
        values += bound[:2]
    if run_filter.newest_of_conversation:
        newer, newer_values = _build_conditions(replace(run_filter, after=None))
        newer = " AND ".join([newer, *(sql for sql, _ in slow)])
        parts.append(_NO_NEWER.format(_ALIAS.sub("n.", newer)))
        values += [*newer_values, *slow_values]
    limit = -1 if run_filter.limit is None else min(run_filter.limit, SUM_MAX)
    column, direction = filter_sql.SORTS[run_filter.sort], _DIRECTIONS[run_filter.ascending]
    rows = connection.execute(
        f"SELECT {_RUN_COLUMNS} FROM runs r WHERE {' AND '.join(parts)}"
        f" ORDER BY {column} {direction}, r.id {direction} LIMIT ?",
        (*values, limit),
    )
    runs = [to_run_info(row) for row in rows]
    if bound is None:
        return RunPage(runs)
    newest_first = run_filter.sort == "started" and not run_filter.ascending
    return RunPage(runs, bound[2], f"r{bound[1]}" if newest_first else None)


def conversations(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> dict[str, ConversationInfo]:
    rows = connection.execute(_CONVERSATIONS, (msgspec.json.encode(list(run_ids)).decode(),))
    return {row[0]: ConversationInfo(*row[1:]) for row in rows}


def find_runs(connection: sqlite3.Connection, id_or_prefix: str) -> list[RunInfo]:
    """Return runs by id, short id or prefix of an id."""
    text = id_or_prefix.strip().lower()
    if text.startswith("r") and text[1:].isdecimal():
        where = "r.id = ?"
        values: list[int | str] = [int(text[1:][:18])]
    else:
        # The range of all ids with this prefix: U+10FFFF is the last character.
        where = "r.run_id >= ? AND r.run_id < ?"
        values = [text, text + "\U0010ffff"]
    rows = connection.execute(
        f"SELECT {_RUN_COLUMNS} FROM runs r WHERE {where} ORDER BY r.id LIMIT 50", values
    )
    found = [to_run_info(row) for row in rows]
    exact = [run for run in found if run.id == text]
    return exact or found


def find_run(connection: sqlite3.Connection, run_id: str, *, with_logs: bool = True) -> Run | None:
    """Return a run. Without logs, the program's log records have only their position and `row`."""
    execute = connection.execute
    row = execute(f"SELECT {_RUN_COLUMNS} FROM runs r WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        return None
    info, number = to_run_info(row), row[1]
    writers = _Writers(connection)
    spans = in_order(_span_infos(connection, info.short_id, number, writers))
    if with_logs:
        logs = in_order(_log_info(row, writers) for row in execute(_LOGS, (number,)))
    else:
        rows = execute(_LOG_POSITIONS, (number,)).fetchall()
        logs = in_order(_log_position(row, writers) for row in rows)
        for at, log in enumerate(logs):
            # Log records of the recorder are few, and checks need them.
            if log.component == OWN_COMPONENT and log.row is not None:
                logs[at] = read_log(connection, log.row)
    links = [
        LinkInfo(span_id=span, target_run=run, target_span=target, reason=reason)
        for span, run, target, reason in execute(_LINKS, (number,))
    ]
    return Run(info=info, spans=spans, logs=logs, links=links)


def _span_infos(
    connection: sqlite3.Connection, run: str, number: int, writers: Mapping[int, str]
) -> Iterator[SpanInfo]:
    ids = CanonicalIds(connection)
    cursor = connection.execute(_SPANS, (number,))
    while rows := cursor.fetchmany(_FETCH_ROWS):
        # Tiny bodies only: a longer one may be as old as the store, and `find` reads every pack
        # between the smallest and the largest id.
        canonical = ids.find(
            [row[at] for row in rows for at in _BODY_COLUMNS if row[at] and row[at + 1] < TINY_MAX]
        )
        for row in rows:
            yield _span_info(run, row, writers, canonical)


def read_log(connection: sqlite3.Connection, row: int) -> LogInfo:
    """Return the log record of a row, which must exist."""
    columns = connection.execute(_LOG, (row,)).fetchone()
    return _log_info(columns, _Writers(connection))


class _Writers(dict[int, str]):
    """Writers by row id. A run has few, and a join would look one up for every span."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __missing__(self, number: int) -> str:
        query = "SELECT writer FROM writers WHERE id = ?"
        (name,) = self._connection.execute(query, (number,)).fetchone()
        self[number] = name
        return str(name)


def _build_conditions(run_filter: RunFilter) -> tuple[str, list[Any]]:
    where = ["1"]
    values: list[Any] = []
    if not run_filter.with_implicit:
        where.append(WORTH_SHOWING)
    if run_filter.failed:
        where.append("r.outcome NOT IN ('ok', 'running', 'unknown')")
    if run_filter.since_ns is not None:
        where.append("r.started_ns >= ?")
        values.append(run_filter.since_ns)
    if run_filter.before_ns is not None:
        where.append("r.started_ns < ?")
        values.append(run_filter.before_ns)
    if run_filter.after is not None:
        column, later = filter_sql.SORTS[run_filter.sort], ">" if run_filter.ascending else "<"
        where.append(f"({column}, r.id) {later} (SELECT {column}, r.id FROM runs r WHERE r.id = ?)")
        values.append(int(run_filter.after[1:]))
    if run_filter.name is not None:
        where.append("r.name LIKE ? ESCAPE '\\'")
        values.append(filter_sql.build_pattern(run_filter.name))
    if run_filter.like is not None:
        sql, term_values = filter_sql.build_condition(Term("text", ":", run_filter.like))
        where.append(sql)
        values += term_values
    if run_filter.tenant_of is not None:
        where.append("r.tenant = (SELECT tenant FROM runs WHERE run_id = ?)")
        values.append(run_filter.tenant_of)
    if run_filter.of_process is not None:
        where.append("(r.run_id = ? OR r.process_run = ?)")
        values += [run_filter.of_process, run_filter.of_process]
    for column in ("name", "outcome"):
        exact = run_filter.name_is if column == "name" else run_filter.outcome
        if exact is not None:
            where.append(f"r.{column} = ?")
            values.append(exact)
    if run_filter.conversation_id is not None:
        where.append("r.conversation_id = ?")
        values.append(run_filter.conversation_id)
    for term in filter(filter_sql.is_cheap, run_filter.terms):
        sql, term_values = filter_sql.build_condition(term)
        where.append(sql)
        values += term_values
    return " AND ".join(where), values


# The run of a process is shown only if it has content or an outcome that its other runs lack. If
# the program opened runs, lines outside of them are not content: one program is one entry.
WORTH_SHOWING = """NOT (r.implicit AND r.own_count = 0 AND (
    r.outcome IN ('ok', 'running')
    OR EXISTS (SELECT 1 FROM runs i WHERE i.process_run = r.run_id AND i.outcome = r.outcome))
  OR r.component = 'vestige' AND EXISTS (SELECT 1 FROM runs i WHERE i.process_run = r.run_id
    AND (r.outcome IN ('ok', 'running') OR i.outcome = r.outcome))
    AND NOT EXISTS (
      SELECT 1 FROM spans s WHERE s.run = r.id AND s.type NOT IN ('run', 'process')))"""

_DIRECTIONS = {True: "ASC", False: "DESC"}
_ALIAS = re.compile(r"\br\.")
_NO_NEWER = """(r.conversation_id IS NULL OR NOT EXISTS (
  SELECT 1 FROM runs n WHERE n.conversation_id = r.conversation_id AND n.tenant = r.tenant
  AND (n.started_ns, n.id) > (r.started_ns, r.id) AND {}))"""
_CONVERSATIONS = """
SELECT w.value, r.conversation_id, count(*), sum(r.outcome NOT IN ('ok', 'running', 'unknown')),
  min(r.started_ns), CAST(total(r.input_tokens) AS INTEGER), CAST(total(r.output_tokens) AS INTEGER)
FROM json_each(?) w JOIN runs n ON n.run_id = w.value
JOIN runs r ON r.conversation_id = n.conversation_id AND r.tenant = n.tenant GROUP BY 1
"""

_RUN_COLUMNS = (
    "r.run_id, r.id, r.name, r.outcome, r.started_ns, r.ended_ns, r.duration_ns, r.last_ns,"
    " r.span_count, r.log_count, r.error_count, r.conversation_id, r.component, r.input_tokens,"
    " r.output_tokens, r.pinned, r.implicit, r.process_run, r.missing_count"
)

# In the order of SpanInfo's fields. A body has three columns.
_SPANS = """
SELECT s.span_id, s.number, s.parent_id, s.writer, s.seq, s.started_ns, s.type, s.name,
  s.component, s.status, s.duration_ns, s.attributes, s.redacted,
  s.input_body, s.input_bytes, s.input_info, s.output_body, s.output_bytes, s.output_info,
  s.end_seq
FROM spans s WHERE s.run = ?
"""
_BODY_COLUMNS = (13, 16)
"""The columns of `_SPANS` with body ids. The next column is the size of the body."""
_FETCH_ROWS = 1_000
# In the order of LogInfo's fields.
_LOG_COLUMNS = (
    "l.span_id, l.writer, l.seq, l.time_ns, l.level, l.component, l.message, l.attributes,"
    " l.redacted, l.body, l.body_bytes, l.body_info"
)
_LOGS = f"SELECT {_LOG_COLUMNS} FROM logs l WHERE l.run = ?"
_LOG = f"SELECT {_LOG_COLUMNS} FROM logs l WHERE l.id = ?"
# Only columns before the message, because those after it may be on overflow pages.
_LOG_POSITIONS = """
SELECT l.span_id, l.writer, l.seq, l.time_ns, l.level, l.component, l.id
FROM logs l WHERE l.run = ?
"""
_LINKS = """
SELECT span_id, target_run, target_span, reason FROM links WHERE run = ? ORDER BY rowid
"""


def _span_info(
    run: str, row: Sequence[Any], writers: Mapping[int, str], canonical: Mapping[int, int]
) -> SpanInfo:
    # Positional arguments, because keywords take three times as long.
    return SpanInfo(
        row[0],
        f"{run}.s{row[1]}",
        row[2],
        order_group(writers[row[3]], row[0], row[4]),
        row[4],
        row[5],
        row[6],
        row[7],
        row[8],
        row[9],
        row[10],
        _decode(row[11]) if row[11] else {},
        _decode(row[12]) if row[12] else {},
        _body_ref(canonical.get(row[13], row[13]), row[14], row[15]),
        _body_ref(canonical.get(row[16], row[16]), row[17], row[18]),
        row[19],
    )


def _log_info(row: Sequence[Any], writers: Mapping[int, str]) -> LogInfo:
    return LogInfo(
        row[0],
        order_group(writers[row[1]], row[0], row[2]),
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        _decode(row[7]) if row[7] else {},
        _decode(row[8]) if row[8] else {},
        _body_ref(row[9], row[10], row[11]),
    )


def _log_position(row: Sequence[Any], writers: Mapping[int, str]) -> LogInfo:
    return LogInfo(
        row[0],
        order_group(writers[row[1]], row[0], row[2]),
        row[2],
        row[3],
        row[4],
        row[5],
        "",
        {},
        {},
        None,
        row[6],
    )


def _body_ref(body_id: int | None, size_bytes: int | None, info: str | None) -> BodyRef | None:
    if size_bytes is None:
        return None
    if info is None:
        return BodyRef(body_id, size_bytes)
    note = _decode(info)
    reason = note.get("lost") or f"truncated from {note['original_bytes']} bytes"
    return BodyRef(body_id, size_bytes, reason)
