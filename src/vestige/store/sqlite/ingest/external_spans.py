"""Take in what a carrier brings (record/external_seq.py): known by its span, one run's first span found.

    record = carried.sift(record, run, writer)      # None: nothing new

A span is there with its close, then all of it is; or it was cut by the end of a batch whose
process died, and what is there of it is looked up. So nothing is kept of what was seen but the
spans themselves.

Which span is the run is known only when all have come, so it is put right as they come. Until the
first one is there, another may stand in for it, which grows with what it is around; the first one
takes its place, and its row. Of two without a parent the earlier is the run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

from vestige.record.external_seq import is_carrier, is_line, is_stand_in
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen
from vestige.store.protocol import Headless
from vestige.store.sqlite.ingest.rows import SELECT_SPAN, RunRow, SpanRow, WriterRow, load_span

INDEXES = """
-- Of what was carried: lines that are known by what they say; model calls by what they stand in; and
-- traces whose first span has not come. Numbers so large no writer that counts has.
CREATE INDEX logs_carried ON logs(run, seq - 4503599627370496) WHERE seq >= 4503599627370496;
CREATE INDEX spans_carried ON spans(run, parent_id) WHERE type = 'llm' AND seq >= 4294967296;
CREATE INDEX runs_headless ON runs(imported_ns) WHERE root_span IS NULL AND imported_ns IS NOT NULL;
"""

_RUN, _STEP = "run", "step"
_WHOLE: Final[set[int]] = set()
"""Of a span that is here with its close. Compared by identity, never added to."""

TakeBack = Callable[[SpanRow, RunRow], None]
Ended = Callable[[SpanRow, RunRow, WriterRow, int], None]


class _Root(msgspec.Struct):
    span_id: str
    started_ns: int
    stands_in: bool


class ExternalSpanMerger:
    """Of one batch; `spans` are its rows as they are folded, by run and span id."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        spans: dict[tuple[str, str], SpanRow],
        take_back: TakeBack,
        ended: Ended,
    ) -> None:
        self._connection = connection
        self._spans = spans
        self._take_back = take_back
        self._ended = ended
        self._known: dict[tuple[int, str], set[int]] = {}
        """Numbers of each span that are here."""
        self._lines: set[tuple[int, int]] = set()
        self._roots: dict[int, _Root | None] = {}
        self._begun: dict[int, SpanOpen] = {}
        """Of stand-ins that are here: another opening, whose close is next."""
        self._joined: set[int] = set()
        """Runs of which a conversation is known."""
        self._gone: dict[int, str] = {}
        """Stand-ins whose place is taken: nothing is inside them."""

    def sift(self, record: AnyRecord, run: RunRow, writer: WriterRow) -> AnyRecord | None:
        """The record, perhaps put right; None: it is known."""
        if isinstance(record, Log) and is_line(record.seq):
            return record if self._is_new_line(run, record.seq) else None
        if not isinstance(record, (SpanOpen, Log, SpanClose)) or record.span_id is None:
            return record
        if is_stand_in(record.seq) and not isinstance(record, Log):
            return self._sift_stand_in(record, run, writer)
        key = (run.id, record.span_id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(run, record.span_id)
        if known is _WHOLE or record.seq in known:
            return None
        if isinstance(record, SpanClose):
            self._known[key] = _WHOLE
        else:
            known.add(record.seq)
        return self._placed(record, run, writer) if isinstance(record, SpanOpen) else record

    def _look_up(self, run: RunRow, span_id: str) -> set[int]:
        row = self._connection.execute(_SPAN, (span_id, run.id)).fetchone()
        if row is None:
            return set()
        seq, status = row
        if status is not None:
            return _WHOLE
        lines = self._connection.execute(_EVENTS, (run.id, span_id))
        return {seq, *(line for (line,) in lines)}

    def _is_new_line(self, run: RunRow, seq: int) -> bool:
        if (run.id, seq) in self._lines:
            return False
        self._lines.add((run.id, seq))
        return self._connection.execute(_LINE, (run.id, seq)).fetchone() is None

    # --- which span is the run ------------------------------------------------------------------

    def _placed(self, record: SpanOpen, run: RunRow, writer: WriterRow) -> SpanOpen:
        if record.conversation_id is not None:
            self._join(run, record.conversation_id)
        if record.parent_id is not None:
            if record.parent_id == self._gone.get(run.id):
                return msgspec.structs.replace(record, parent_id=None)
            return record
        if record.type != _RUN:
            return record
        root = self._root(run)
        if root is not None and not root.stands_in:
            if root.started_ns <= record.time_ns:
                return msgspec.structs.replace(record, type=_STEP)
            self._demote(root, run, writer)
        elif root is not None:
            self._give_place(root, record, run)
        self._roots[run.id] = _Root(record.span_id, record.time_ns, False)
        return record

    def _join(self, run: RunRow, conversation_id: str) -> None:
        """Any span may say which conversation this is; what the first one says counts (store/sqlite/ingest/batch_ingest.py)."""
        if run.id not in self._joined:
            self._joined.add(run.id)
            (known,) = self._connection.execute(_CONVERSATION, (run.id,)).fetchone()
            if known is None:
                run.changes.setdefault("conversation_id", conversation_id)

    def _root(self, run: RunRow) -> _Root | None:
        if run.id not in self._roots:
            row = self._connection.execute(_ROOT, (run.id,)).fetchone()
            stands_in = row is not None and is_carrier(row[3]) and is_stand_in(row[2] or 0)
            self._roots[run.id] = None if row is None else _Root(row[0], row[1], stands_in)
        return self._roots[run.id]

    def _load(self, run: RunRow, span_id: str) -> SpanRow:
        span = self._spans.get((run.run_id, span_id))
        if span is None:
            span = load_span(self._connection.execute(SELECT_SPAN, (span_id, run.id)).fetchone())
            self._spans[run.run_id, span_id] = span
        return span

    def _tell(self, span: SpanRow) -> None:
        """A live view hears of rows that are new, and of these."""
        if span.id is not None:
            self._connection.execute("INSERT INTO closes(span) VALUES (?)", (span.id,))

    def _demote(self, root: _Root, run: RunRow, writer: WriterRow) -> None:
        """An earlier one is here: this one is some work of the run."""
        span = self._load(run, root.span_id)
        run.own += 1
        with_end = span.status is not None
        if with_end:
            self._take_back(span, run)
        span.type = _STEP
        self._tell(span)
        if with_end:
            self._add_again(span, run, writer)

    def _give_place(self, root: _Root, first: SpanOpen, run: RunRow) -> None:
        """The first span is here: it gets the row of the one that stood in for it, and its number."""
        made = self._load(run, root.span_id)
        if made.status is not None:
            self._take_back(made, run)
        del self._spans[run.run_id, root.span_id]
        row = SpanRow(
            made.run,
            made.number,
            first.span_id,
            made.writer,
            None,
            None,
            first.time_ns,
            "?",
            "?",
            "?",
            {},
        )
        row.id = made.id
        self._tell(row)
        self._spans[run.run_id, first.span_id] = row
        for span in self._spans.values():
            if span.run == run.id and span.parent_id == root.span_id:
                span.parent_id = None
        self._connection.execute(_FREE, (run.id, root.span_id))
        self._gone[run.id] = root.span_id

    # --- one that stands in for it --------------------------------------------------------------

    def _sift_stand_in(
        self, record: SpanOpen | SpanClose, run: RunRow, writer: WriterRow
    ) -> AnyRecord | None:
        root = self._root(run)
        if root is None:
            if isinstance(record, SpanOpen):
                self._roots[run.id] = _Root(record.span_id, record.time_ns, True)
            return record
        if not root.stands_in:
            self._gone[run.id] = record.span_id
            return None
        if isinstance(record, SpanOpen):
            self._begun[run.id] = record
            return None
        span = self._load(run, root.span_id)
        begun = self._begun.pop(run.id, None)
        if span.status is None:
            return record
        if begun is not None:
            self._widen(span, begun, record, run, writer)
        return None

    def _widen(
        self, span: SpanRow, begun: SpanOpen, close: SpanClose, run: RunRow, writer: WriterRow
    ) -> None:
        assert span.duration_ns is not None
        ended_ns = max(span.started_ns + span.duration_ns, close.time_ns)
        started_ns = min(span.started_ns, begun.time_ns)
        status = "error" if span.status == "error" else close.status
        if (started_ns, ended_ns - started_ns, status) == (
            span.started_ns,
            span.duration_ns,
            span.status,
        ):
            return
        self._take_back(span, run)
        self._tell(span)
        if begun.time_ns < span.started_ns:
            span.name, span.component = begun.name, begun.component
            run.changes |= {
                "name": begun.name,
                "component": begun.component,
                "started_ns": started_ns,
            }
        span.started_ns, span.duration_ns, span.status = started_ns, ended_ns - started_ns, status
        self._add_again(span, run, writer)

    def _add_again(self, span: SpanRow, run: RunRow, writer: WriterRow) -> None:
        assert span.duration_ns is not None
        run.errors += span.status != "ok"
        self._ended(span, run, writer, span.started_ns + span.duration_ns)


def find_rootless(connection: sqlite3.Connection, before_ns: int) -> list[Headless]:
    """Traces without their first span, of which nothing came since."""
    found = []
    for run, run_id, tenant, started_ns, last_ns, writer in connection.execute(
        _HEADLESS, (before_ns,)
    ):
        if writer is not None and is_carrier(writer):
            row = connection.execute(_EARLIEST, (run,)).fetchone()
            name, component, began_ns = row or (None, None, started_ns)
            found.append(Headless(run_id, writer, tenant, name, component, began_ns, last_ns))
    return found


_SPAN = "SELECT seq, status FROM spans WHERE span_id = ? AND run = ?"
_CONVERSATION = "SELECT conversation_id FROM runs WHERE id = ?"
_EVENTS = "SELECT seq FROM logs WHERE run = ? AND span_id = ?"
# As the index has it: of the bare column, SQLite would read all that is above the bound.
_LINE = """
SELECT 1 FROM logs WHERE run = ? AND seq - 4503599627370496 = ? - 4503599627370496
  AND seq >= 4503599627370496
"""
_ROOT = """
SELECT s.span_id, s.started_ns, s.seq, w.writer FROM runs r
JOIN spans s ON s.span_id = r.root_span AND s.run = r.id JOIN writers w ON w.id = s.writer
WHERE r.id = ?
"""
_FREE = "UPDATE spans SET parent_id = NULL WHERE run = ? AND parent_id = ?"
# Asked at every tick of a collector: of each such run, few rows are read.
_HEADLESS = """
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
