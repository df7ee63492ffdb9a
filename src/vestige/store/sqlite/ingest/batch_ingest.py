"""Take a batch of records into the tables: all of it, once, whatever order it comes in.

Spans are folded in memory first (an opening and its close in one batch are one row),
then written with few statements. What was seen before, by (writer, seq), is passed over; what a
carrier brings is known by its span (store/sqlite/ingest/external_spans.py).
The caller owns the transaction: rows and the journal's offset are committed together.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vestige.errors import ForeignRunError, UsageError
from vestige.limits import MIB, SUM_MAX
from vestige.record.codec import render_line
from vestige.record.external_seq import is_carrier
from vestige.record.tenant import DEFAULT_TENANT, is_tenant
from vestige.record.types import (
    OWN_COMPONENT,
    AnyRecord,
    BodyInfo,
    Link,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)
from vestige.store.span_batches import BatchBody, SpanBatch
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest.external_spans import ExternalSpanMerger
from vestige.store.sqlite.ingest.nested_calls import NestedCalls
from vestige.store.sqlite.ingest.rollups import Rollups, count_of
from vestige.store.sqlite.ingest.row_writer import insert, write_runs, write_spans, write_writers
from vestige.store.sqlite.ingest.rows import (
    INSERT_LOGS,
    NO_BODY,
    NO_ID,
    NO_TEXT,
    OWN_TYPES,
    SELECT_SPAN,
    BodyColumns,
    RunRow,
    SpanRow,
    WriterRow,
    json_of,
    load_span,
)
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

ReadSpill = Callable[[str, int, BodyInfo], bytes | None]
"""(writer, seq, info) -> the bytes of a body that was too long for its line, if still there."""

WAITING_MAX = 16 * MIB
"""Bodies held back until they are stored together: the collector's memory is bounded."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Ingest:
    """One batch. Make it, `take` the records, `write`; then commit."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        bodies: Bodies,
        read_spill: ReadSpill,
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        self._connection = connection
        self._bodies = bodies
        self._read_spill = read_spill
        self._tenant = tenant
        self._tenant_id = 0 if tenant == DEFAULT_TENANT else _get_tenant(connection, tenant)
        self._writers: dict[str, WriterRow] = {}
        self._runs: dict[str, RunRow] = {}
        self._spans: dict[tuple[str, str], SpanRow] = {}
        self._logs: list[tuple[tuple[Any, ...], BodyColumns]] = []
        self._links: list[tuple[Any, ...]] = []
        self._unknown: list[tuple[Any, ...]] = []
        self._rollups = Rollups(tenant)
        self._nested = NestedCalls(connection, self._spans, self._rollups)
        # Weakly: in a circle, a batch would stay until the garbage collector looks, and an import has it off.
        own = weakref.proxy(self)
        self._carried = ExternalSpanMerger(
            connection,
            self._spans,
            lambda span, run: own._take_back(span, run),
            lambda span, run, writer, ended_ns: own._ended(span, run, writer, ended_ns),
        )
        self._waiting: list[list[int | str | None]] = []
        self._texts: list[tuple[bytes, int]] = []
        self._waiting_bytes = 0
        self.taken = 0

    def take(self, records: Iterable[AnyRecord]) -> None:
        """Fold records into rows."""
        # Looked up once: this loop runs for every record there is.
        writers = self._writers
        kinds: dict[type, Callable[[Any, WriterRow], None]] = {
            SpanOpen: self._open,
            SpanClose: self._close,
            SpanUpdate: self._update,
            Log: self._log,
            Unknown: self._keep_unknown,
        }
        for record in records:
            writer = writers.get(record.writer)
            if writer is None:
                time_ns = 0 if isinstance(record, Unknown) else record.time_ns
                writer = self._load_writer(record.writer, record.run_id, time_ns)
            if writer.carries:
                sifted = self._sift(record, writer)
                if sifted is not None:
                    self.taken += 1
                    kinds[type(sifted)](sifted, writer)
            elif writer.seen.add(record.seq):
                self.taken += 1
                kinds[type(record)](record, writer)

    def _sift(self, record: AnyRecord, writer: WriterRow) -> AnyRecord | None:
        if isinstance(record, Unknown):
            return record
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        return self._carried.sift(record, run, writer)

    def take_block(self, block: SpanBatch) -> None:
        """Fold whole spans into rows."""
        spans, run_id, rows = block.spans, block.run_id, self._spans
        first = spans[0]
        writer = self._writers.get(block.writer) or self._load_writer(
            block.writer, run_id, first.time_ns
        )
        run = self._runs.get(run_id) or self._load_run(run_id, first.time_ns)
        texts = self._bodies.put_packs(block.packs, self._tenant_id) if block.packs else 0
        seen = writer.seen
        opened = closed = seen.add_next(first.seq, spans[-1].seq + 1)
        all_new = opened
        for whole in spans:
            seq = whole.seq
            if not all_new:
                opened, closed = seen.add(seq), seen.add(seq + 1)
                if not (opened or closed):
                    continue  # of one that is half known all is told: `write` finds out what was there
            self.taken += opened + closed
            run.own += opened
            run.spans += 1
            started_ns, duration_ns = whole.time_ns, whole.duration_ns
            span = SpanRow(
                run.id,
                run.numbers + run.spans,
                whole.span_id,
                writer.id,
                seq,
                whole.parent_id,
                started_ns,
                whole.type,
                whole.name,
                whole.component,
                whole.attributes,
                whole.status,
                duration_ns,
                seq + 1,
                None,
                self._held(whole.input, texts, started_ns),
                self._held(whole.output, texts, started_ns + duration_ns),
            )
            known = rows.setdefault((run_id, whole.span_id), span)
            if whole.status != "ok":
                run.errors += 1
            self._ended(span, run, writer, started_ns + duration_ns)
            if known is not span:
                self._join(known, span, run, writer)
            self._tell_time(run, writer, started_ns + duration_ns)

    def _held(self, body: BatchBody, texts: int, time_ns: int) -> BodyColumns:
        if body is None:
            return NO_BODY
        if isinstance(body, str):
            return self._hold(body.encode(), time_ns)
        number, size = body
        return texts + number, size, NO_TEXT

    # --- the kinds ----------------------------------------------------------------------------

    def _open(self, record: SpanOpen, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        key = (record.run_id, record.span_id)
        span = self._spans.get(key)
        if span is None:
            # Not looked up: an opening is all but always the first word on its span, and
            # `write` finds out when it is not.
            run.spans += 1
            span = self._spans[key] = SpanRow(
                run.id,
                run.numbers + run.spans,
                record.span_id,
                writer.id,
                record.seq,
                record.parent_id,
                record.time_ns,
                record.type,
                record.name,
                record.component,
                record.attributes,
            )
        elif span.seq is not None:
            # Opened twice under one id: the first one stands.
            span.attributes = {**record.attributes, **span.attributes}
            return
        else:
            # What is learned later wins, also when it was read first.
            span.attributes = {**record.attributes, **span.attributes}
            span.writer, span.seq, span.parent_id = writer.id, record.seq, record.parent_id
            span.started_ns = record.time_ns
            span.type, span.name, span.component = record.type, record.name, record.component
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.body is not None or record.body_info is not None:
            span.input = self._body(record)
        if record.links:
            self._take_links(run, record.span_id, record.links)
        if record.type not in OWN_TYPES:
            run.own += 1
        elif record.type == "process":
            self._process_opened(record, writer)
        elif record.parent_id is None:
            self._root_opened(record, run)
        if span.status is not None:
            self._ended(span, run, writer, record.time_ns + (span.duration_ns or 0))
        self._tell_time(run, writer, record.time_ns)

    def _close(self, record: SpanClose, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        span = self._spans.get((record.run_id, record.span_id))
        if span is None:
            span = self._load_span(record, run, writer)
        if span.status is not None:
            self._take_back(span, run)  # closed twice: the last one stands
        span.status = record.status
        span.duration_ns = record.duration_ns
        span.end_seq = record.seq
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.body is not None or record.body_info is not None:
            span.output = self._body(record)
        if record.status != "ok":
            run.errors += 1
        if span.seq is not None:
            self._ended(span, run, writer, record.time_ns)
        self._tell_time(run, writer, record.time_ns)

    def _take_back(self, span: SpanRow, run: RunRow) -> None:
        """Another end is known now: what was added up of this one is taken off again."""
        assert span.status is not None and span.duration_ns is not None
        if span.status != "ok":
            run.errors -= 1
        if span.seq is None:
            return  # only its close was known, and it was not added up
        attributes = span.attributes
        if span.type == "llm" and attributes:
            run.input_tokens -= count_of(attributes.get("input_tokens"))
            run.output_tokens -= count_of(attributes.get("output_tokens"))
        self._rollups.add(
            min(span.started_ns + span.duration_ns, SUM_MAX),
            span.component,
            span.type,
            span.name,
            span.status,
            span.duration_ns,
            attributes,
            -1,
        )
        if span.type == "llm" and attributes:
            self._nested.fold(span, run, -1)

    def _ended(self, span: SpanRow, run: RunRow, writer: WriterRow, ended_ns: int) -> None:
        """Both ends are known, whichever was read first: add the span up."""
        assert span.status is not None and span.duration_ns is not None
        attributes = span.attributes
        if ended_ns > SUM_MAX:
            ended_ns = SUM_MAX
        read = written = 0
        if span.type == "llm":
            if attributes:
                read = count_of(attributes.get("input_tokens"))
                written = count_of(attributes.get("output_tokens"))
                run.input_tokens += read
                run.output_tokens += written
        elif span.type == "run" and span.parent_id is None:
            run.changes["outcome"] = span.status
            run.changes["duration_ns"] = span.duration_ns
            run.changes["ended_ns"] = ended_ns
        elif span.type == "process" and span.span_id == writer.process_span:
            writer.ended = "interrupted" if span.status == "interrupted" else "exited"
        self._rollups.add(
            ended_ns,
            span.component,
            span.type,
            span.name,
            span.status,
            span.duration_ns,
            attributes,
        )
        if read or written:
            self._nested.fold(span, run, 1)

    def _update(self, record: SpanUpdate, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        span = self._spans.get((record.run_id, record.span_id))
        if span is None:
            span = self._load_span(record, run, writer)
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.links:
            self._take_links(run, record.span_id, record.links)
        self._tell_time(run, writer, record.time_ns)

    def _keep_unknown(self, record: Unknown, writer: WriterRow) -> None:
        self._unknown.append((record.writer, record.seq, record.run_id, render_line(record)))

    def _tell_time(self, run: RunRow, writer: WriterRow, time_ns: int) -> None:
        if time_ns > run.last_ns:
            run.last_ns = time_ns
        if time_ns > writer.last_ns:
            writer.last_ns = time_ns

    def _log(self, record: Log, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        run.logs += 1
        if record.component != OWN_COMPONENT:
            run.own += 1
            if record.level == "error":
                run.errors += 1
        elif "gap" in record.attributes:
            writer.dropped += count_of(record.attributes.get("count"))
        body: BodyColumns = NO_BODY
        if record.body is not None or record.body_info is not None:
            body = self._body(record)
        row = (
            run.id,
            record.span_id,
            writer.id,
            record.seq,
            record.time_ns,
            record.level,
            record.component,
            record.message,
            json_of(record.attributes),
            json_of(record.redacted),
        )
        self._logs.append((row, body))
        self._tell_time(run, writer, record.time_ns)

    def _root_opened(self, record: SpanOpen, run: RunRow) -> None:
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

    def _process_opened(self, record: SpanOpen, writer: WriterRow) -> None:
        writer.process_span = record.span_id
        writer.pid = count_of(record.attributes.get("pid")) or None
        supervisor = record.attributes.get("supervisor")
        writer.supervisor = supervisor if isinstance(supervisor, str) else None

    def _take_links(self, run: RunRow, span_id: str, links: list[Link]) -> None:
        for link in links:
            self._links.append((run.id, span_id, link.run_id, link.span_id, link.reason))

    def _body(self, record: SpanOpen | SpanClose | Log) -> BodyColumns:
        """The columns that refer to a body. Its id is filled in when bodies are stored."""
        info, text = record.body_info, record.body
        data: bytes | None
        note = NO_TEXT
        if info is None:
            if text is None:
                return NO_BODY
            data = text.encode()
        else:
            if info.spilled_bytes is not None:
                data = self._read_spill(record.writer, record.seq, info)
                if data is None:
                    return None, info.spilled_bytes, '{"lost":"its file is gone"}'
            elif text is None:
                return NO_BODY
            else:
                data = _decoded(text) if info.encoding == "base64" else text.encode()
            if info.original_bytes is not None:
                note = _encode(
                    {"original_bytes": info.original_bytes, "sha256": info.original_sha256}
                ).decode()
        return self._hold(data, record.time_ns, note)

    def _hold(self, data: bytes, time_ns: int, note: str = NO_TEXT) -> BodyColumns:
        columns: list[int | str | None] = [NO_ID, len(data), note]
        self._waiting.append(columns)
        self._texts.append((data, time_ns))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > WAITING_MAX:
            self._keep_bodies()
        return columns

    def _keep_bodies(self) -> None:
        """Store the bodies so far, all at once, and tell the rows their ids."""
        ids = self._bodies.put_many(self._texts, self._tenant_id)
        for columns, body_id in zip(self._waiting, ids, strict=True):
            columns[0] = body_id
        self._waiting, self._texts, self._waiting_bytes = [], [], 0

    # --- rows that are being changed ----------------------------------------------------------

    def _load_writer(self, name: str, run_id: str | None, time_ns: int) -> WriterRow:
        row = self._connection.execute(
            "SELECT id, seen, first_ns, last_ns, pid, supervisor, process_span, ended, tenant"
            " FROM writers"
            " WHERE writer = ?",
            (name,),
        ).fetchone()
        if row is None:
            # No carrier is a process that could have died.
            ended = "imported" if is_carrier(name) else None
            cursor = self._connection.execute(
                "INSERT INTO writers(writer, first_ns, last_ns, seen, tenant, ended)"
                " VALUES (?, ?, ?, '[]', ?, ?)",
                (name, time_ns, time_ns, self._tenant, ended),
            )
            assert cursor.lastrowid is not None
            writer = WriterRow(cursor.lastrowid, SeqRanges(), time_ns, time_ns)
            writer.ended = ended
        else:
            # Else one tenant could say that it has brought what another is about to bring.
            self._refuse_foreign(row[8], run_id or "?", f"writer {name}")
            writer = WriterRow(row[0], SeqRanges.parse(row[1]), row[2], row[3])
            writer.pid, writer.supervisor, writer.process_span, writer.ended = row[4:8]
        if is_carrier(name):
            writer.carries = self._nested.any_order = True
        self._writers[name] = writer
        return writer

    def _load_run(self, run_id: str, time_ns: int) -> RunRow:
        row = self._connection.execute(
            "SELECT id, span_count, tenant FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            cursor = self._connection.execute(
                "INSERT INTO runs(run_id, started_ns, last_ns, tenant) VALUES (?, ?, ?, ?)",
                (run_id, time_ns, time_ns, self._tenant),
            )
            assert cursor.lastrowid is not None
            row = (cursor.lastrowid, 0, self._tenant)
        self._refuse_foreign(row[2], run_id, f"run {run_id}")
        run = self._runs[run_id] = RunRow(row[0], row[1], run_id)
        return run

    def _refuse_foreign(self, owner: str, run_id: str, what: str) -> None:
        """Before anything is written: the caller's transaction goes as a whole."""
        if owner != self._tenant:
            raise ForeignRunError(
                f"{what[:120]}: belongs to another tenant than {self._tenant}. Nothing was taken in.",
                run_id,
            )

    def _load_span(self, record: SpanClose | SpanUpdate, run: RunRow, writer: WriterRow) -> SpanRow:
        """A span that this batch did not open: from the table, or a new one."""
        row = self._connection.execute(SELECT_SPAN, (record.span_id, run.id)).fetchone()
        if row is not None:
            span = load_span(row)
        else:
            # Its opening was lost, or is yet to come: this is all that we know of it.
            run.spans += 1
            span = SpanRow(
                run.id,
                run.numbers + run.spans,
                record.span_id,
                writer.id,
                None,
                None,
                record.time_ns,
                "?",
                "?",
                "?",
                {},
            )
        self._spans[record.run_id, record.span_id] = span
        return span

    def _merge_late_openings(self) -> None:
        """Some spans were in the table already: their close or update came first."""
        runs = {run.id: run for run in self._runs.values()}
        writers = {writer.id: writer for writer in self._writers.values()}
        for key, span in list(self._spans.items()):
            if span.id is not None:
                continue
            row = self._connection.execute(SELECT_SPAN, (span.span_id, span.run)).fetchone()
            if row is None:
                continue
            known = self._spans[key] = load_span(row)
            self._join(known, span, runs[span.run], writers[span.writer])
        # Merged spans keep the numbers that they had; the others close the gaps.
        counts: Counter[int] = Counter()
        for span in self._spans.values():
            if span.id is None:
                counts[span.run] += 1
                span.number = runs[span.run].numbers + counts[span.run]

    def _join(self, known: SpanRow, span: SpanRow, run: RunRow, writer: WriterRow) -> None:
        """Two rows of one span, added up each for itself: the first gets what both know, and counts."""
        run.spans -= 1
        for ended in (known, span):
            if ended.status is not None:
                self._take_back(ended, run)
        self._merge(known, span)
        if known.status is not None:
            run.errors += known.status != "ok"
            if known.seq is not None:
                self._ended(known, run, writer, known.started_ns + (known.duration_ns or 0))

    def _merge(self, known: SpanRow, span: SpanRow) -> None:
        """An opening, perhaps with an end, into the row that was there before it."""
        if known.status is not None and span.status is not None:
            known.attributes = {**known.attributes, **span.attributes}  # closed twice
        else:
            known.attributes = {**span.attributes, **known.attributes}
        if span.status is not None:
            known.status, known.duration_ns = span.status, span.duration_ns
            known.end_seq, known.output = span.end_seq, span.output
        if span.redacted:
            _add_counts(known, span.redacted)
        if known.seq is None:  # else opened twice under one id: the first one stands
            for name in _OPENING:
                setattr(known, name, getattr(span, name))

    def write(self) -> None:
        """All rows, in a few statements."""
        connection = self._connection
        self._keep_bodies()
        if not write_spans(connection, self._spans.values()):
            self._merge_late_openings()
            write_spans(connection, self._spans.values())
        insert(connection, INSERT_LOGS, [(*row, *body) for row, body in self._logs])
        connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?)", self._links)
        connection.executemany("INSERT OR IGNORE INTO unknown VALUES (?, ?, ?, ?)", self._unknown)
        write_runs(connection, self._runs.values())
        write_writers(connection, self._writers.values())
        self._rollups.write(connection)


def _get_tenant(connection: sqlite3.Connection, name: str) -> int:
    """A tenant's number; a new one gets the next."""
    if not is_tenant(name):
        raise UsageError(f"{name[:80]!r}: no name for a tenant.")
    connection.execute("INSERT OR IGNORE INTO tenants(name) VALUES (?)", (name,))
    query = "SELECT id FROM tenants WHERE name = ?"
    number: int = connection.execute(query, (name,)).fetchone()[0]
    return number


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


_OPENING = (
    "writer",
    "seq",
    "parent_id",
    "started_ns",
    "type",
    "name",
    "component",
    "input",
)
"""What a span knows from its opening."""


def _add_counts(span: SpanRow, counts: dict[str, int]) -> None:
    merged = dict(span.redacted or {})
    for rule, count in counts.items():
        merged[rule] = merged.get(rule, 0) + count
    span.redacted = merged
