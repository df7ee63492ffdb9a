"""Take a batch of records into the tables: all of it, once, whatever order it comes in.

Spans are folded in memory first (an opening and its close in one batch are one row),
then written with few statements. What was seen before, by (writer, seq), is passed over.
The caller owns the transaction: rows and the journal's offset are committed together.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vestige.record.line import render_line
from vestige.record.types import (
    OWN_COMPONENT,
    AnyRecord,
    Attributes,
    BodyInfo,
    Link,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)
from vestige.store.bodies import Bodies
from vestige.store.rollups import Rollups, count_of
from vestige.store.seen import SeenSet

ReadSpill = Callable[[str, int, BodyInfo], bytes | None]
"""(writer, seq, info) -> the bytes of a body that was too long for its line, if still there."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_OWN_TYPES = frozenset(("run", "process"))


_BodyColumns = tuple[int | None, int | None, str | None]
"""Body id, size, and a note if it was cut or lost."""
_NO_BODY: _BodyColumns = (None, None, None)


class _Writer:
    """A writer's row while a batch is taken in."""

    __slots__ = (
        "dropped",
        "ended",
        "first_ns",
        "id",
        "last_ns",
        "pid",
        "process_span",
        "seen",
        "supervisor",
    )

    def __init__(self, id: int, seen: SeenSet, first_ns: int, last_ns: int) -> None:
        self.id, self.seen, self.first_ns, self.last_ns = id, seen, first_ns, last_ns
        self.dropped = 0
        self.pid: int | None = None
        self.supervisor: str | None = None
        self.process_span: str | None = None
        self.ended: str | None = None


class _Run:
    """What a batch adds to a run's row."""

    __slots__ = (
        "changes", "errors", "first_ns", "id", "input_tokens", "last_ns", "logs", "numbers",
        "output_tokens", "own", "spans",
    )  # fmt: skip

    def __init__(self, id: int, numbers: int) -> None:
        self.id = id
        self.numbers = numbers
        """Spans numbered so far."""
        self.spans = self.logs = self.errors = self.own = 0
        self.input_tokens = self.output_tokens = 0
        self.first_ns = self.last_ns = 0
        self.changes: dict[str, Any] = {}


class _Span:
    """A span's row while it is being folded."""

    __slots__ = (
        "attributes", "component", "duration_ns", "end_seq", "id", "input", "name", "number",
        "output", "parent_id", "redacted", "run", "seq", "span_id", "started_ns", "status", "type",
        "writer",
    )  # fmt: skip

    id: int | None
    """None: not in the table yet."""
    run: int
    number: int
    span_id: str
    parent_id: str | None
    writer: int
    seq: int | None
    """None: its opening was lost, or is yet to come."""
    started_ns: int
    type: str
    name: str
    component: str
    status: str | None
    duration_ns: int | None
    end_seq: int | None
    attributes: Attributes
    redacted: dict[str, int] | None
    input: _BodyColumns
    output: _BodyColumns


class Ingest:
    """One batch. Make it, `take` the records, `write`; then commit."""

    def __init__(
        self, connection: sqlite3.Connection, bodies: Bodies, read_spill: ReadSpill
    ) -> None:
        self._connection = connection
        self._bodies = bodies
        self._read_spill = read_spill
        self._writers: dict[str, _Writer] = {}
        self._runs: dict[str, _Run] = {}
        self._spans: dict[tuple[str, str], _Span] = {}
        self._logs: list[tuple[Any, ...]] = []
        self._links: list[tuple[Any, ...]] = []
        self._unknown: list[tuple[Any, ...]] = []
        self._rollups = Rollups()
        self.taken = 0

    def take(self, records: Iterable[AnyRecord]) -> None:
        """Fold records into rows."""
        for record in records:
            writer = self._writers.get(record.writer) or self._load_writer(record)
            if not writer.seen.add(record.seq):
                continue
            self.taken += 1
            kind = type(record)
            if kind is SpanOpen:
                self._open(record, writer)  # type: ignore[arg-type]  # by its exact type
            elif kind is SpanClose:
                self._close(record, writer)  # type: ignore[arg-type]
            elif kind is Log:
                self._log(record, writer)  # type: ignore[arg-type]
            elif kind is SpanUpdate:
                self._update(record, writer)  # type: ignore[arg-type]
            else:
                assert isinstance(record, Unknown)
                self._unknown.append(
                    (record.writer, record.seq, record.run_id, render_line(record))
                )

    # --- the kinds ----------------------------------------------------------------------------

    def _open(self, record: SpanOpen, writer: _Writer) -> None:
        run = self._run(record.run_id, record.time_ns)
        span = self._spans.get((record.run_id, record.span_id))
        if span is None:
            # Not looked up: an opening is all but always the first word on its span, and
            # `write` finds out when it is not.
            span = self._new_span(record.run_id, record.span_id, run)
        span.seq = record.seq
        span.writer = writer.id
        span.parent_id = record.parent_id
        span.started_ns = record.time_ns
        span.type = record.type
        span.name = record.name
        span.component = record.component
        if record.attributes:
            # What is learned later wins, also when it was read first.
            span.attributes = {**record.attributes, **span.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.body is not None or record.body_info is not None:
            span.input = self._body(record, run)
        if record.links:
            self._take_links(run, record.span_id, record.links)
        if record.type not in _OWN_TYPES:
            run.own += 1
        elif record.type == "process":
            self._process_opened(record, writer)
        elif record.parent_id is None:
            self._root_opened(record, run)
        if record.time_ns > writer.last_ns:
            writer.last_ns = record.time_ns

    def _close(self, record: SpanClose, writer: _Writer) -> None:
        run = self._run(record.run_id, record.time_ns)
        span = self._span(record.run_id, record.span_id, run, writer, record.time_ns)
        span.status = record.status
        span.duration_ns = record.duration_ns
        span.end_seq = record.seq
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.body is not None or record.body_info is not None:
            span.output = self._body(record, run)
        if record.status != "ok":
            run.errors += 1
        attributes = span.attributes
        if span.type == "llm" and attributes:
            run.input_tokens += count_of(attributes.get("input_tokens"))
            run.output_tokens += count_of(attributes.get("output_tokens"))
        elif span.type == "run" and span.parent_id is None:
            run.changes["outcome"] = record.status
            run.changes["duration_ns"] = record.duration_ns
            run.changes["ended_ns"] = record.time_ns
        elif span.type == "process" and record.span_id == writer.process_span:
            writer.ended = "interrupted" if record.status == "interrupted" else "exited"
        self._rollups.add(
            record.time_ns, span.component, span.type, span.name, record.status,
            record.duration_ns, attributes,
        )  # fmt: skip
        if record.time_ns > writer.last_ns:
            writer.last_ns = record.time_ns

    def _update(self, record: SpanUpdate, writer: _Writer) -> None:
        run = self._run(record.run_id, record.time_ns)
        span = self._span(record.run_id, record.span_id, run, writer, record.time_ns)
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.links:
            self._take_links(run, record.span_id, record.links)

    def _log(self, record: Log, writer: _Writer) -> None:
        run = self._run(record.run_id, record.time_ns)
        run.logs += 1
        if record.component != OWN_COMPONENT:
            run.own += 1
            if record.level == "error":
                run.errors += 1
        elif "gap" in record.attributes:
            writer.dropped += count_of(record.attributes.get("count"))
        body = _NO_BODY
        if record.body is not None or record.body_info is not None:
            body = self._body(record, run)
        self._logs.append(
            (
                run.id, record.span_id, writer.id, record.seq, record.time_ns, record.level,
                record.component, record.message, _json(record.attributes),
                _json(record.redacted), *body,
            )
        )  # fmt: skip
        if record.time_ns > writer.last_ns:
            writer.last_ns = record.time_ns

    def _root_opened(self, record: SpanOpen, run: _Run) -> None:
        changes = run.changes
        changes["name"] = record.name
        changes["component"] = record.component
        changes["root_span"] = record.span_id
        changes["started_ns"] = record.time_ns
        if record.conversation_id is not None:
            changes["conversation_id"] = record.conversation_id
        if record.attributes.get("implicit") is True:
            changes["implicit"] = 1
        for link in record.links or ():
            if link.reason == "process":
                changes["process_run"] = link.run_id

    def _process_opened(self, record: SpanOpen, writer: _Writer) -> None:
        writer.process_span = record.span_id
        writer.pid = count_of(record.attributes.get("pid")) or None
        supervisor = record.attributes.get("supervisor")
        writer.supervisor = supervisor if isinstance(supervisor, str) else None

    def _take_links(self, run: _Run, span_id: str, links: list[Link]) -> None:
        for link in links:
            self._links.append((run.id, span_id, link.run_id, link.span_id, link.reason))

    def _body(self, record: SpanOpen | SpanClose | Log, run: _Run) -> _BodyColumns:
        """Store a body; the columns that refer to it."""
        info = record.body_info
        data: bytes | None
        if info is not None and info.spilled_bytes is not None:
            data = self._read_spill(record.writer, record.seq, info)
            if data is None:
                return None, info.spilled_bytes, '{"lost":"its file is gone"}'
        elif record.body is None:
            return _NO_BODY
        elif info is not None and info.encoding == "base64":
            try:
                data = base64.b64decode(record.body, validate=True)
            except (binascii.Error, ValueError):
                data = record.body.encode()
        else:
            data = record.body.encode()
        note = None
        if info is not None and info.original_bytes is not None:
            note = _encode(
                {"original_bytes": info.original_bytes, "sha256": info.original_sha256}
            ).decode()
        return self._bodies.put(data, record.time_ns), len(data), note

    # --- rows that are being changed ----------------------------------------------------------

    def _load_writer(self, record: AnyRecord) -> _Writer:
        time_ns = 0 if isinstance(record, Unknown) else record.time_ns
        row = self._connection.execute(
            "SELECT id, seen, first_ns, last_ns, pid, supervisor, process_span, ended FROM writers"
            " WHERE writer = ?",
            (record.writer,),
        ).fetchone()
        if row is None:
            cursor = self._connection.execute(
                "INSERT INTO writers(writer, first_ns, last_ns, seen) VALUES (?, ?, ?, '[]')",
                (record.writer, time_ns, time_ns),
            )
            assert cursor.lastrowid is not None
            writer = _Writer(cursor.lastrowid, SeenSet(), time_ns, time_ns)
        else:
            writer = _Writer(row[0], SeenSet.parse(row[1]), row[2], row[3])
            writer.pid, writer.supervisor, writer.process_span, writer.ended = row[4:]
        self._writers[record.writer] = writer
        return writer

    def _run(self, run_id: str, time_ns: int) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            row = self._connection.execute(
                "SELECT id, span_count FROM runs WHERE run_id = ?", (run_id,)
            ).fetchone()
            if row is None:
                cursor = self._connection.execute(
                    "INSERT INTO runs(run_id, started_ns, last_ns) VALUES (?, ?, ?)",
                    (run_id, time_ns, time_ns),
                )
                assert cursor.lastrowid is not None
                row = (cursor.lastrowid, 0)
            run = self._runs[run_id] = _Run(*row)
        if time_ns > run.last_ns:
            run.last_ns = time_ns
        return run

    def _span(self, run_id: str, span_id: str, run: _Run, writer: _Writer, time_ns: int) -> _Span:
        """The span's row: of this batch, of the table, or a new one."""
        span = self._spans.get((run_id, span_id))
        if span is not None:
            return span
        row = self._connection.execute(_SELECT_SPAN, (span_id, run.id)).fetchone()
        if row is not None:
            span = self._spans[run_id, span_id] = _loaded(row, run.id, span_id)
            return span
        # Its opening was lost, or is yet to come: this is all that we know of it.
        span = self._new_span(run_id, span_id, run)
        span.writer, span.seq, span.parent_id, span.started_ns = writer.id, None, None, time_ns
        span.type = span.name = span.component = "?"
        return span

    def _new_span(self, run_id: str, span_id: str, run: _Run) -> _Span:
        span = self._spans[run_id, span_id] = _Span()
        run.numbers += 1
        run.spans += 1
        span.id, span.run, span.span_id, span.number = None, run.id, span_id, run.numbers
        span.status = span.duration_ns = span.end_seq = span.redacted = None
        span.attributes = {}
        span.input = span.output = _NO_BODY
        return span

    def _merge_late_openings(self) -> None:
        """Some spans were in the table already: their close or update came first."""
        runs = {run.id: run for run in self._runs.values()}
        for key, span in list(self._spans.items()):
            if span.id is not None:
                continue
            row = self._connection.execute(_SELECT_SPAN, (span.span_id, span.run)).fetchone()
            if row is None:
                continue
            run = runs[span.run]
            run.spans -= 1
            known = _loaded(row, span.run, span.span_id)
            if known.seq is not None:
                del self._spans[key]  # opened twice under one id: the first one stands
                continue
            for name in ("writer", "seq", "parent_id", "started_ns", "type", "name", "component"):
                setattr(known, name, getattr(span, name))
            known.attributes = {**span.attributes, **known.attributes}
            known.input = span.input
            if span.status is not None:
                known.status, known.duration_ns = span.status, span.duration_ns
                known.end_seq, known.output = span.end_seq, span.output
            elif known.status is not None and known.type == "run" and known.parent_id is None:
                run.changes["outcome"] = known.status
                run.changes["duration_ns"] = known.duration_ns
                run.changes["ended_ns"] = known.started_ns + (known.duration_ns or 0)
            self._spans[key] = known

    def write(self) -> None:
        """All rows, in a few statements."""
        execute, executemany = self._connection.execute, self._connection.executemany
        if not self._write_spans():
            self._merge_late_openings()
            self._write_spans()
        executemany(_INSERT_LOG, self._logs)
        executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?)", self._links)
        executemany("INSERT OR IGNORE INTO unknown VALUES (?, ?, ?, ?)", self._unknown)
        for run in self._runs.values():
            execute(
                _UPDATE_RUN,
                (
                    run.last_ns, run.spans, run.logs, run.errors, run.own, run.input_tokens,
                    run.output_tokens, run.id,
                ),
            )  # fmt: skip
            if run.changes:
                # The names are ours, from _root_opened and _close, never a caller's.
                names = ", ".join(f"{name} = ?" for name in run.changes)
                execute(f"UPDATE runs SET {names} WHERE id = ?", (*run.changes.values(), run.id))
        for writer in self._writers.values():
            execute(
                _UPDATE_WRITER,
                (
                    writer.seen.render(), writer.last_ns, writer.dropped, writer.pid,
                    writer.supervisor, writer.process_span, writer.ended, writer.id,
                ),
            )  # fmt: skip
        self._rollups.write(self._connection)

    def _write_spans(self) -> bool:
        """False: some were there already, and nothing was written."""
        new, changed = [], []
        for span in self._spans.values():
            columns = (
                span.writer, span.seq, span.parent_id, span.started_ns, span.type, span.name,
                span.component, span.status, span.duration_ns, span.end_seq,
                _encode(span.attributes).decode() if span.attributes else None,
                _encode(span.redacted).decode() if span.redacted else None,
                *span.input, *span.output,
            )  # fmt: skip
            if span.id is None:
                new.append((span.run, span.number, span.span_id, *columns))
            else:
                changed.append((*columns, span.id))
        self._connection.execute("SAVEPOINT spans")
        try:
            self._connection.executemany(_INSERT_SPAN, new)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO spans")
            return False
        self._connection.executemany(_UPDATE_SPAN, changed)
        self._connection.execute("RELEASE spans")
        return True


def _loaded(row: tuple[Any, ...], run: int, span_id: str) -> _Span:
    span = _Span()
    span.run, span.span_id = run, span_id
    (
        span.id, span.number, span.writer, span.seq, span.parent_id, span.started_ns, span.type,
        span.name, span.component, span.status, span.duration_ns, span.end_seq, attributes,
        redacted, *bodies,
    ) = row  # fmt: skip
    span.attributes = _decode(attributes) if attributes else {}
    span.redacted = _decode(redacted) if redacted else None
    span.input, span.output = (*bodies[:3],), (*bodies[3:],)
    return span


def _json(value: Attributes | dict[str, int] | None) -> str | None:
    return _encode(value).decode() if value else None


def _add_counts(span: _Span, counts: dict[str, int]) -> None:
    merged = dict(span.redacted or {})
    for rule, count in counts.items():
        merged[rule] = merged.get(rule, 0) + count
    span.redacted = merged


_BODIES = "input_body, input_bytes, input_info, output_body, output_bytes, output_info"
_COLUMNS = (
    "writer, seq, parent_id, started_ns, type, name, component, status, duration_ns, end_seq,"
    f" attributes, redacted, {_BODIES}"
)
_SELECT_SPAN = f"SELECT id, number, {_COLUMNS} FROM spans WHERE span_id = ? AND run = ?"
_INSERT_SPAN = f"INSERT INTO spans(run, number, span_id, {_COLUMNS}) VALUES ({','.join('?' * 21)})"
_UPDATE_SPAN = (
    "UPDATE spans SET " + ", ".join(f"{name.strip()} = ?" for name in _COLUMNS.split(","))
) + " WHERE id = ?"
_INSERT_LOG = (
    "INSERT INTO logs(run, span_id, writer, seq, time_ns, level, component, message, attributes,"
    " redacted, body, body_bytes, body_info) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE_RUN = """
UPDATE runs SET last_ns = max(last_ns, ?), span_count = span_count + ?,
  log_count = log_count + ?, error_count = error_count + ?, own_count = own_count + ?,
  input_tokens = input_tokens + ?, output_tokens = output_tokens + ?
WHERE id = ?
"""
_UPDATE_WRITER = """
UPDATE writers SET seen = ?, last_ns = ?, dropped = dropped + ?, pid = ?, supervisor = ?,
  process_span = ?, ended = ? WHERE id = ?
"""
