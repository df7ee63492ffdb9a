"""Merge spans from external exporters, which may arrive out of order and more than once.

    record = merger.deduplicate(record, run, writer)      # None: it is already stored

Records are recognized by their span (record/otlp_sequence_numbers.py). If a span is stored with
its close, all of its records are stored. If it is stored without, a process died between two
batches, and its records are looked up. So no set of seen records is needed.

The root span of a run is known only when all spans have arrived, so it is corrected as they
arrive. Until then a placeholder may be the root, which is widened to contain its spans. The root
span takes over the row of the placeholder. Of two spans without a parent, the earlier is the root.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

from vestige.record.otlp_sequence_numbers import is_external_writer, is_log_seq, is_placeholder_seq
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen
from vestige.store.protocol import RootlessTrace
from vestige.store.sqlite.ingest.batch_rows import (
    SELECT_SPAN,
    RunRow,
    SpanRow,
    WriterRow,
    load_span,
)

INDEXES = """
-- For records of external exporters, whose seqs are larger than any that a writer counts to:
-- log records by their content, model calls by their parent, and traces without a root span.
CREATE INDEX logs_carried ON logs(run, seq - 4503599627370496) WHERE seq >= 4503599627370496;
CREATE INDEX spans_carried ON spans(run, parent_id) WHERE type = 'llm' AND seq >= 4294967296;
CREATE INDEX runs_headless ON runs(imported_ns) WHERE root_span IS NULL AND imported_ns IS NOT NULL;
"""

MODEL_CALLS = """
DROP INDEX spans_carried;
CREATE INDEX spans_carried ON spans(run, parent_id)
  WHERE type IN ('llm', 'embedding', 'image', 'speech', 'transcription', 'moderation', 'rerank',
    'reranker') AND seq >= 4294967296;
"""

_RUN, _STEP = "run", "step"
_COMPLETE: Final[set[int]] = set()
"""The seqs of a span that is stored with its close. Compared by identity, never added to."""

SubtractSpan = Callable[[SpanRow, RunRow], None]
CountSpan = Callable[[SpanRow, RunRow, WriterRow, int], None]


class _Root(msgspec.Struct):
    span_id: str
    started_ns: int
    is_placeholder: bool


class ExternalSpanMerger:
    """Merge the external records of one batch. `spans` are its rows, by run and span id."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        spans: dict[tuple[str, str], SpanRow],
        subtract_span: SubtractSpan,
        count_span: CountSpan,
    ) -> None:
        self._connection = connection
        self._spans = spans
        self._subtract_span = subtract_span
        self._count_span = count_span
        self._known: dict[tuple[int, str], set[int]] = {}
        """The stored seqs of each span."""
        self._logs: set[tuple[int, int]] = set()
        self._roots: dict[int, _Root | None] = {}
        self._placeholder_openings: dict[int, SpanOpen] = {}
        """Second openings of placeholders that are already stored, until their closes arrive."""
        self._with_conversation: set[int] = set()
        """Runs whose conversation is known."""
        self._replaced: dict[int, str] = {}
        """Stand-ins that the root span has replaced, by run."""

    def deduplicate(self, record: AnyRecord, run: RunRow, writer: WriterRow) -> AnyRecord | None:
        """Return the record, corrected if necessary, or None if it is already stored."""
        if isinstance(record, Log) and is_log_seq(record.seq):
            return record if self._is_new_log(run, record.seq) else None
        if not isinstance(record, (SpanOpen, Log, SpanClose)) or record.span_id is None:
            return record
        if is_placeholder_seq(record.seq) and not isinstance(record, Log):
            return self._merge_placeholder(record, run, writer)
        key = (run.id, record.span_id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find_seqs(run, record.span_id)
        if known is _COMPLETE or record.seq in known:
            return None
        if isinstance(record, SpanClose):
            self._known[key] = _COMPLETE
        else:
            known.add(record.seq)
        return self._correct_root(record, run, writer) if isinstance(record, SpanOpen) else record

    def _find_seqs(self, run: RunRow, span_id: str) -> set[int]:
        row = self._connection.execute(_SPAN, (span_id, run.id)).fetchone()
        if row is None:
            return set()
        seq, status = row
        if status is not None:
            return _COMPLETE
        log_seqs = self._connection.execute(_LOG_SEQS, (run.id, span_id))
        return {seq, *(log_seq for (log_seq,) in log_seqs)}

    def _is_new_log(self, run: RunRow, seq: int) -> bool:
        if (run.id, seq) in self._logs:
            return False
        self._logs.add((run.id, seq))
        return self._connection.execute(_LOG, (run.id, seq)).fetchone() is None

    # --- the root span --------------------------------------------------------------------------

    def _correct_root(self, record: SpanOpen, run: RunRow, writer: WriterRow) -> SpanOpen:
        """Return the opening with its parent and type corrected, and update the run's root."""
        if record.conversation_id is not None:
            self._set_conversation(run, record.conversation_id)
        if record.parent_id is not None:
            if record.parent_id == self._replaced.get(run.id):
                return msgspec.structs.replace(record, parent_id=None)
            return record
        if record.type != _RUN:
            return record
        root = self._find_root(run)
        if root is not None and not root.is_placeholder:
            if root.started_ns <= record.time_ns:
                return msgspec.structs.replace(record, type=_STEP)
            self._demote(root, run, writer)
        elif root is not None:
            self._replace_placeholder(root, record, run)
        self._roots[run.id] = _Root(record.span_id, record.time_ns, False)
        return record

    def _set_conversation(self, run: RunRow, conversation_id: str) -> None:
        """Set the conversation from any span. The root span overrides it (batch_ingest.py)."""
        if run.id not in self._with_conversation:
            self._with_conversation.add(run.id)
            (known,) = self._connection.execute(_CONVERSATION, (run.id,)).fetchone()
            if known is None:
                run.changes.setdefault("conversation_id", conversation_id)

    def _find_root(self, run: RunRow) -> _Root | None:
        if run.id not in self._roots:
            row = self._connection.execute(_ROOT, (run.id,)).fetchone()
            placeholder = (
                row is not None and is_external_writer(row[3]) and is_placeholder_seq(row[2] or 0)
            )
            self._roots[run.id] = None if row is None else _Root(row[0], row[1], placeholder)
        return self._roots[run.id]

    def _load_span(self, run: RunRow, span_id: str) -> SpanRow:
        span = self._spans.get((run.run_id, span_id))
        if span is None:
            span = load_span(self._connection.execute(SELECT_SPAN, (span_id, run.id)).fetchone())
            self._spans[run.run_id, span_id] = span
        return span

    def _publish(self, span: SpanRow) -> None:
        """Add a changed row to the change feed, which otherwise has new rows only."""
        if span.id is not None:
            self._connection.execute("INSERT INTO closes(span) VALUES (?)", (span.id,))

    def _demote(self, root: _Root, run: RunRow, writer: WriterRow) -> None:
        """Make the root an ordinary step, because an earlier root span has arrived."""
        span = self._load_span(run, root.span_id)
        run.own += 1
        ended = span.status is not None
        if ended:
            self._subtract_span(span, run)
        span.type = _STEP
        self._publish(span)
        if ended:
            self._count_again(span, run, writer)

    def _replace_placeholder(self, root: _Root, opening: SpanOpen, run: RunRow) -> None:
        """Give the row and number of a placeholder to the root span, which has arrived."""
        placeholder = self._load_span(run, root.span_id)
        if placeholder.status is not None:
            self._subtract_span(placeholder, run)
        del self._spans[run.run_id, root.span_id]
        row = SpanRow(
            placeholder.run,
            placeholder.number,
            opening.span_id,
            placeholder.writer,
            None,
            None,
            opening.time_ns,
            "?",
            "?",
            "?",
            {},
        )
        row.id = placeholder.id
        self._publish(row)
        self._spans[run.run_id, opening.span_id] = row
        for span in self._spans.values():
            if span.run == run.id and span.parent_id == root.span_id:
                span.parent_id = None
        self._connection.execute(_CLEAR_PARENT, (run.id, root.span_id))
        self._replaced[run.id] = root.span_id

    # --- placeholders for the root span --------------------------------------------------

    def _merge_placeholder(
        self, record: SpanOpen | SpanClose, run: RunRow, writer: WriterRow
    ) -> AnyRecord | None:
        root = self._find_root(run)
        if root is None:
            if isinstance(record, SpanOpen):
                self._roots[run.id] = _Root(record.span_id, record.time_ns, True)
            return record
        if not root.is_placeholder:
            self._replaced[run.id] = record.span_id
            return None
        if isinstance(record, SpanOpen):
            self._placeholder_openings[run.id] = record
            return None
        span = self._load_span(run, root.span_id)
        opening = self._placeholder_openings.pop(run.id, None)
        if span.status is None:
            return record
        if opening is not None:
            self._widen(span, opening, record, run, writer)
        return None

    def _widen(
        self, span: SpanRow, opening: SpanOpen, close: SpanClose, run: RunRow, writer: WriterRow
    ) -> None:
        """Extend a stored placeholder to the times of another one for the same run."""
        assert span.duration_ns is not None
        ended_ns = max(span.started_ns + span.duration_ns, close.time_ns)
        started_ns = min(span.started_ns, opening.time_ns)
        status = "error" if span.status == "error" else close.status
        if (started_ns, ended_ns - started_ns, status) == (
            span.started_ns,
            span.duration_ns,
            span.status,
        ):
            return
        self._subtract_span(span, run)
        self._publish(span)
        if opening.time_ns < span.started_ns:
            span.name, span.component = opening.name, opening.component
            run.changes |= {
                "name": opening.name,
                "component": opening.component,
                "started_ns": started_ns,
            }
        span.started_ns, span.duration_ns, span.status = started_ns, ended_ns - started_ns, status
        self._count_again(span, run, writer)

    def _count_again(self, span: SpanRow, run: RunRow, writer: WriterRow) -> None:
        assert span.duration_ns is not None
        run.errors += span.status != "ok"
        self._count_span(span, run, writer, span.started_ns + span.duration_ns)


def find_rootless_traces(connection: sqlite3.Connection, before_ns: int) -> list[RootlessTrace]:
    """Return traces without a root span, of which nothing arrived since `before_ns`."""
    found = []
    for run, run_id, tenant, started_ns, last_ns, writer in connection.execute(
        _ROOTLESS, (before_ns,)
    ):
        if writer is not None and is_external_writer(writer):
            row = connection.execute(_EARLIEST, (run,)).fetchone()
            name, component, began_ns = row or (None, None, started_ns)
            found.append(RootlessTrace(run_id, writer, tenant, name, component, began_ns, last_ns))
    return found


_SPAN = "SELECT seq, status FROM spans WHERE span_id = ? AND run = ?"
_CONVERSATION = "SELECT conversation_id FROM runs WHERE id = ?"
_LOG_SEQS = "SELECT seq FROM logs WHERE run = ? AND span_id = ?"
# The expression of the index. With the bare column, SQLite reads every row above the bound.
_LOG = """
SELECT 1 FROM logs WHERE run = ? AND seq - 4503599627370496 = ? - 4503599627370496
  AND seq >= 4503599627370496
"""
_ROOT = """
SELECT s.span_id, s.started_ns, s.seq, w.writer FROM runs r
JOIN spans s ON s.span_id = r.root_span AND s.run = r.id JOIN writers w ON w.id = s.writer
WHERE r.id = ?
"""
_CLEAR_PARENT = "UPDATE spans SET parent_id = NULL WHERE run = ? AND parent_id = ?"
# A collector runs this every tick, so it reads few rows of each run.
_ROOTLESS = """
SELECT r.id, r.run_id, r.tenant, r.started_ns, r.last_ns, (
  SELECT w.writer FROM writers w WHERE w.id = coalesce(
    (SELECT writer FROM spans WHERE run = r.id LIMIT 1),
    (SELECT writer FROM logs WHERE run = r.id LIMIT 1)))
FROM runs r INDEXED BY runs_headless
WHERE r.root_span IS NULL AND r.imported_ns IS NOT NULL AND r.imported_ns < ?
"""
_EARLIEST = (
    "SELECT name, component, started_ns FROM spans WHERE run = ? ORDER BY started_ns LIMIT 1"
)
