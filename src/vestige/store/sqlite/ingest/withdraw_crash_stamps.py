"""Withdraw the crash stamp of a writer that turns out to be alive.

A collector takes a writer for dead when the lock of its journal is free. A program that closes
descriptors in bulk frees it too, and a machine may be silent for long. When the next record
arrives, the log records of the stamp are deleted, and the spans that it closed are open again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from vestige.record.crash_stamp_seq import STAMP_SEQ_END, STAMP_SEQ_MIN, is_stamp
from vestige.store.sqlite.ingest.batch_rows import (
    NO_BODY,
    SAVE_HIGHEST_ID,
    SELECT_SPAN,
    RunRow,
    SpanRow,
    WriterRow,
    load_span,
)

INDEXES = """
-- Records of crash stamps, whose seqs are in a range of their own (record/crash_stamp_seq.py).
CREATE INDEX spans_stamped ON spans(writer)
  WHERE end_seq >= 281474976710656 AND end_seq < 4503599627370496;
CREATE INDEX logs_stamped ON logs(writer)
  WHERE seq >= 281474976710656 AND seq < 4503599627370496;
-- The change feed also has the spans that are open again.
CREATE TRIGGER span_reopened AFTER UPDATE OF status ON spans
WHEN OLD.status IS NOT NULL AND NEW.status IS NULL
BEGIN INSERT INTO closes(span) VALUES (NEW.id); END;
"""


def exists(connection: sqlite3.Connection, writer: WriterRow) -> bool:
    """Return whether a writer has a crash stamp."""
    return connection.execute(_ANY_LOG, (writer.id,)).fetchone() is not None


def withdraw(
    connection: sqlite3.Connection,
    writer: WriterRow,
    spans: dict[tuple[str, str], SpanRow],
    get_run: Callable[[str], RunRow],
    subtract_span: Callable[[SpanRow, RunRow], None],
) -> None:
    """Undo the stamp of a writer. `spans` and the runs are the rows of the batch."""
    writer.is_stamped = False
    if writer.ended == "interrupted":
        writer.ended = None
    for run_id, span_id in connection.execute(_SPANS, (writer.id,)).fetchall():
        run, key = get_run(run_id), (run_id, span_id)
        span = spans.get(key)
        if span is None:
            row = connection.execute(SELECT_SPAN, (span_id, run.id)).fetchone()
            span = spans[key] = load_span(row)
        if is_stamp(span.end_seq):
            _reopen(span, run, subtract_span)
    connection.execute(SAVE_HIGHEST_ID.format(table="logs"))
    for run_id, log in connection.execute(_LOGS, (writer.id,)).fetchall():
        get_run(run_id).logs -= 1
        connection.execute("DELETE FROM logs WHERE id = ?", (log,))


def _reopen(span: SpanRow, run: RunRow, subtract_span: Callable[[SpanRow, RunRow], None]) -> None:
    subtract_span(span, run)
    span.status = span.duration_ns = span.end_seq = None
    span.output = NO_BODY
    span.attributes = {
        name: value for name, value in span.attributes.items() if name != "response.partial"
    }
    if span.type == "run" and span.parent_id is None:
        run.changes |= {"outcome": "running", "duration_ns": None, "ended_ns": None}


_RANGE = f">= {STAMP_SEQ_MIN} AND {{seq}} < {STAMP_SEQ_END}"
_IS_SPAN = f"s.end_seq {_RANGE.format(seq='s.end_seq')}"
_IS_LOG = f"l.seq {_RANGE.format(seq='l.seq')}"
_ANY_LOG = f"SELECT 1 FROM logs l INDEXED BY logs_stamped WHERE l.writer = ? AND {_IS_LOG} LIMIT 1"
_SPANS = f"""
SELECT r.run_id, s.span_id FROM spans s INDEXED BY spans_stamped JOIN runs r ON r.id = s.run
WHERE s.writer = ? AND {_IS_SPAN}
"""
_LOGS = f"""
SELECT r.run_id, l.id FROM logs l INDEXED BY logs_stamped JOIN runs r ON r.id = l.run
WHERE l.writer = ? AND {_IS_LOG}
"""
