"""Read the changed rows of a staging database, in the columns of ClickHouse.

batch = export(staging)          # {"spans": [...], "runs": [...]}, for commit_log.commit
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from vestige.record.redaction.stream_redaction import spell
from vestige.store.clickhouse.ingest.merge_in_memory import Staging

Row = Sequence[Any]


def export(staging: Staging, number: int) -> dict[str, list[Row]]:
    """Return the rows of commit `number`, each with `deleted` as its last value."""
    week = datetime.date.fromisoformat(staging.week)
    execute = staging.connection.execute
    batch: dict[str, list[Row]] = {
        "bodies": [
            make_body_row(tenant, body_id, size_bytes, first_ns, data, week)
            for tenant, body_id, size_bytes, first_ns, data in execute(_BODIES)
        ],
        "body_keys": [(*row, week, 0) for row in execute(_BODY_KEYS)],
        "spans": [_span(staging, row, week) for row in execute(_SPANS)],
        "logs": [(*row, week, 0) for row in execute(_LOGS)],
        "links": [(*row, week, 0) for row in execute(_LINKS, (staging.view.counters["links"],))],
        "closes": [(*row, week, 0) for row in execute(_CLOSES)],
        "unknown": [(*row, 0) for row in execute(_UNKNOWN)],
        "rollups": [_rollup(row) for row in execute(_ROLLUPS)],
        "journals": [(*row, staging.home_id, 0) for row in execute(_JOURNALS)],
        "remote_writers": [(*row, 0) for row in execute(_REMOTE_WRITERS)],
        "writers": [(*row, 0) for row in execute(_WRITERS)],
        "runs": [_run(staging, row, number, week) for row in execute(_RUNS)],
    }
    # With all columns: a condition that the log record meets must find this version of it, too.
    batch["logs"] += [
        (*row, week, 1) for row in execute(_DELETED_LOGS, (staging.view.counters["logs"],))
    ]
    for table, rows in staging.extra.items():
        batch.setdefault(table, []).extend(rows)
    batch["rollups"] = [(*row[:-1], staging.base, row[-1]) for row in batch["rollups"]]
    return {table: rows for table, rows in batch.items() if rows}


def make_body_row(
    tenant: str,
    body_id: int,
    size_bytes: int,
    first_ns: int,
    data: bytes,
    week: datetime.date,
    evicted_ns: int | None = None,
    deleted: int = 0,
) -> Row:
    """Return a row of a body, with the text that a stream assembles to."""
    stream_text = "\n".join(spell(data)).encode(errors="replace")
    return (
        tenant,
        body_id,
        size_bytes,
        first_ns,
        evicted_ns,
        data,
        stream_text,
        0,
        week,
        deleted,
    )


def _span(staging: Staging, row: Row, week: datetime.date) -> Row:
    *columns, in_info, output_body, output_bytes, out_info = row
    input_body, previews = columns[-2], staging.bodies.previews
    before = staging.previews.get(columns[2], ("", ""))
    return (
        *columns,
        in_info,
        previews.get(input_body, before[0]),
        output_body,
        output_bytes,
        out_info,
        previews.get(output_body, before[1]),
        week,
        0,
    )


def _run(staging: Staging, row: Row, number: int, week: datetime.date) -> Row:
    *columns, has_records = row
    changed, first_week = staging.runs.get(columns[1], (number, week))
    return (*columns, number if has_records else changed, first_week, week, 0)


def _rollup(row: Row) -> Row:
    tenant, day, component, kind, name, model, count, errors, duration_ns, histogram, *tokens = row
    buckets = msgspec.json.decode(histogram, type=dict[int, int])
    return (
        tenant,
        datetime.date.fromisoformat(day),
        component,
        kind,
        name,
        model,
        count,
        errors,
        duration_ns,
        list(buckets),
        list(buckets.values()),
        *tokens,
        0,
    )


# In the order of the columns in schema.py.
_BODIES: Final = "SELECT tenant, id, size_bytes, first_ns, data FROM new_bodies ORDER BY id"
_BODY_KEYS: Final = "SELECT tenant, hash, id FROM new_bodies ORDER BY id"
_SPANS: Final = """
SELECT r.tenant, s.run, s.id, s.number, s.span_id, s.parent_id, s.writer, s.seq, s.started_ns,
  s.type, s.name, s.component, s.status, s.duration_ns, s.end_seq, s.attributes, s.redacted,
  s.input_body, s.input_bytes, s.input_info, s.output_body, s.output_bytes, s.output_info
FROM changed c JOIN spans s ON s.id = c.id JOIN runs r ON r.id = s.run WHERE c.kind = 'spans'
"""
_LOG_COLUMNS: Final = """
r.tenant, l.run, l.id, l.span_id, l.writer, l.seq, l.time_ns, l.level, l.component,
  l.message, l.attributes, l.redacted, l.body, l.body_bytes, l.body_info
"""
_LOGS: Final = f"""
SELECT {_LOG_COLUMNS}
FROM changed c JOIN logs l ON l.id = c.id JOIN runs r ON r.id = l.run WHERE c.kind = 'logs'
"""
_DELETED_LOGS: Final = f"""
SELECT {_LOG_COLUMNS} FROM deleted_logs l JOIN runs r ON r.id = l.run WHERE l.id <= ?
"""
_LINKS: Final = """
SELECT r.tenant, l.run, l.rowid, l.span_id, l.target_run, l.target_span, l.reason
FROM links l JOIN runs r ON r.id = l.run WHERE l.rowid > ?
"""
_CLOSES: Final = """
SELECT c.id, c.span, s.run, r.tenant FROM closes c JOIN spans s ON s.id = c.span
JOIN runs r ON r.id = s.run
"""
_UNKNOWN: Final = """
SELECT w.tenant, u.writer, u.seq, u.run_id, u.line FROM unknown u
JOIN writers w ON w.writer = u.writer
"""
_ROLLUPS: Final = "SELECT * FROM rollup_changes"
_JOURNALS: Final = "SELECT writer, generation, offset FROM journals"
_REMOTE_WRITERS: Final = "SELECT writer, over, fault, heard_ns FROM remote_writers"
_WRITERS: Final = """
SELECT w.tenant, w.id, w.writer, w.pid, w.supervisor, w.process_span, w.first_ns, w.last_ns,
  w.seen, w.malformed, w.dropped, w.ended
FROM changed c JOIN writers w ON w.id = c.id WHERE c.kind = 'writers' AND w.writer <> ''
"""
_RUNS: Final = """
SELECT r.tenant, r.id, r.run_id, r.name, r.component, r.conversation_id, r.started_ns, r.last_ns,
  r.ended_ns, r.duration_ns, r.outcome, r.root_span, r.span_count, r.log_count, r.error_count,
  r.own_count, r.input_tokens, r.output_tokens, r.implicit, r.process_run, r.pinned, r.imported_ns,
  r.missing_count, EXISTS (SELECT 1 FROM changed x WHERE x.kind = 'records' AND x.id = r.id)
FROM changed c JOIN runs r ON r.id = c.id WHERE c.kind = 'runs'
"""
