"""Write a batch of records to the tables, each record once and in any order.

Spans are merged in memory first (an opening and its close in one batch are one row),
then written with few statements. Records that were seen before are skipped: a writer's by
(writer, seq), an external exporter's by their span (external_spans.py).
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
from vestige.record.otlp_sequence_numbers import is_external_writer
from vestige.record.run import OUTCOME, UNKNOWN
from vestige.record.tenant import DEFAULT_TENANT, is_tenant
from vestige.record.types import (
    MODEL_CALL_TYPES,
    OWN_COMPONENT,
    AnyRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)
from vestige.store.interface.ingest import ReadSpill
from vestige.store.interface.stats import to_count
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest import join_call_bodies, withdraw_crash_stamps
from vestige.store.sqlite.ingest.batch_rows import (
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
    load_span,
    render_json,
)
from vestige.store.sqlite.ingest.daily_rollups import Rollups
from vestige.store.sqlite.ingest.external_spans import ExternalSpanMerger
from vestige.store.sqlite.ingest.nested_call_tokens import NestedCalls
from vestige.store.sqlite.ingest.row_writer import insert, write_runs, write_spans, write_writers
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

PENDING_BYTES_MAX = 16 * MIB
"""Bodies that wait to be stored together. It bounds the memory of the collector."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Ingest:
    """A batch. Call `add_records`, then `write`, then commit."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        bodies: Bodies,
        read_spill: ReadSpill,
        tenant: str = DEFAULT_TENANT,
        rollups: Rollups | None = None,
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
        self._rollups = rollups or Rollups(tenant)
        self._nested = NestedCalls(connection, self._spans, self._rollups)
        # A weak reference: a cycle would stay in memory, because an import pauses the GC.
        this = weakref.proxy(self)
        self._external = ExternalSpanMerger(
            connection,
            self._spans,
            lambda span, run: this._subtract_span(span, run),
            lambda span, run, writer, ended_ns: this._count_span(span, run, writer, ended_ns),
        )
        self._pending: list[list[int | str | None]] = []
        self._texts: list[tuple[bytes, int]] = []
        self._pending_bytes = 0
        self.new_count = 0
        """Records that were not seen before."""

    def add_records(self, records: Iterable[AnyRecord]) -> None:
        """Merge records into rows."""
        # Local names, because this loop runs for every record.
        writers = self._writers
        handlers: dict[type, Callable[[Any, WriterRow], None]] = {
            SpanOpen: self._add_open,
            SpanClose: self._add_close,
            SpanUpdate: self._add_update,
            Log: self._add_log,
            Unknown: self._add_unknown,
        }
        for record in records:
            writer = writers.get(record.writer)
            if writer is None:
                time_ns = 0 if isinstance(record, Unknown) else record.time_ns
                writer = self._load_writer(record.writer, record.run_id, time_ns)
            if writer.is_external:
                merged = self._merge_external(record, writer)
                if merged is not None:
                    self.new_count += 1
                    handlers[type(merged)](merged, writer)
            elif writer.seen.add(record.seq):
                if writer.is_stamped:
                    self._withdraw_stamp(writer)
                self.new_count += 1
                handlers[type(record)](record, writer)

    def add_stamp(self, records: Iterable[Log | SpanClose]) -> None:
        """Add the records of a crash stamp, whose seqs are not the writer's own."""
        for record in records:
            writer = self._writers.get(record.writer) or self._load_writer(
                record.writer, record.run_id, record.time_ns
            )
            self.new_count += 1
            if isinstance(record, Log):
                self._add_log(record, writer)
            else:
                self._add_close(record, writer)

    def _withdraw_stamp(self, writer: WriterRow) -> None:
        withdraw_crash_stamps.withdraw(
            self._connection,
            writer,
            self._spans,
            lambda run_id: self._runs.get(run_id) or self._load_run(run_id, writer.last_ns),
            self._subtract_span,
        )

    def _merge_external(self, record: AnyRecord, writer: WriterRow) -> AnyRecord | None:
        if isinstance(record, Unknown):
            return record
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        return self._external.deduplicate(record, run, writer)

    # --- one handler for each kind of record ----------------------------------------------------

    def _add_open(self, record: SpanOpen, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        key = (record.run_id, record.span_id)
        span = self._spans.get(key)
        if span is None:
            # No lookup: an opening is almost always the first record of its span. `write`
            # detects the other cases.
            run.spans += 1
            span = self._spans[key] = SpanRow(
                run.id,
                run.spans_before + run.spans,
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
            # Two openings have this id: the later one adds what the first lacks.
            span.attributes = {**record.attributes, **span.attributes}
            if span.writer == writer.id and _refines(record.type, span.type):
                span.type, span.name = record.type, record.name
            if _is_empty(span.input) and (record.body is not None or record.body_info is not None):
                span.input = self._body(record)
            if record.redacted:
                _add_counts(span, record.redacted)
            if record.links:
                self._add_links(run, record.span_id, record.links)
            return
        else:
            # Attributes of the close win, even if the close was read first.
            span.attributes = {**record.attributes, **span.attributes}
            span.writer, span.seq, span.parent_id = writer.id, record.seq, record.parent_id
            span.started_ns = record.time_ns
            span.type, span.name, span.component = record.type, record.name, record.component
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.body is not None or record.body_info is not None:
            span.input = self._body(record)
        if record.links:
            self._add_links(run, record.span_id, record.links)
        if record.type not in OWN_TYPES:
            run.own += 1
        elif record.type == "process":
            self._set_process(record, writer)
        elif record.parent_id is None:
            self._set_root(record, run)
        if span.status is not None:
            self._count_span(span, run, writer, record.time_ns + (span.duration_ns or 0))
        self._update_times(run, writer, record.time_ns)

    def _add_close(self, record: SpanClose, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        span = self._spans.get((record.run_id, record.span_id))
        if span is None:
            span = self._load_span(record, run, writer)
        if span.status is not None:
            self._subtract_span(span, run)  # two closes have this id: the last one counts
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
            self._count_span(span, run, writer, record.time_ns)
        self._update_times(run, writer, record.time_ns)

    def _subtract_span(self, span: SpanRow, run: RunRow) -> None:
        """Subtract an ended span from all sums, because its end changes."""
        assert span.status is not None and span.duration_ns is not None
        if span.status != "ok":
            run.errors -= 1
        if span.seq is None:
            return  # without its opening, the span was not counted
        attributes = span.attributes
        if span.type in MODEL_CALL_TYPES and attributes:
            run.input_tokens -= to_count(attributes.get("input_tokens"))
            run.output_tokens -= to_count(attributes.get("output_tokens"))
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
        if span.type in MODEL_CALL_TYPES and attributes:
            self._nested.adjust(span, run, -1)

    def _count_span(self, span: SpanRow, run: RunRow, writer: WriterRow, ended_ns: int) -> None:
        """Add a span to all sums, once both of its ends are known."""
        assert span.status is not None and span.duration_ns is not None
        attributes = span.attributes
        if ended_ns > SUM_MAX:
            ended_ns = SUM_MAX
        input_tokens = output_tokens = 0
        if span.type in MODEL_CALL_TYPES:
            if attributes:
                input_tokens = to_count(attributes.get("input_tokens"))
                output_tokens = to_count(attributes.get("output_tokens"))
                run.input_tokens += input_tokens
                run.output_tokens += output_tokens
        elif span.type == "run" and span.parent_id is None:
            is_unknown = attributes.get(OUTCOME) == UNKNOWN
            run.changes["outcome"] = UNKNOWN if is_unknown else span.status
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
        if input_tokens or output_tokens:
            self._nested.adjust(span, run, 1)

    def _add_update(self, record: SpanUpdate, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        span = self._spans.get((record.run_id, record.span_id))
        if span is None:
            span = self._load_span(record, run, writer)
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if record.redacted:
            _add_counts(span, record.redacted)
        if record.links:
            self._add_links(run, record.span_id, record.links)
        self._update_times(run, writer, record.time_ns)

    def _add_unknown(self, record: Unknown, writer: WriterRow) -> None:
        self._unknown.append((record.writer, record.seq, record.run_id, render_line(record)))

    def _update_times(self, run: RunRow, writer: WriterRow, time_ns: int) -> None:
        if time_ns > run.last_ns:
            run.last_ns = time_ns
        if time_ns > writer.last_ns:
            writer.last_ns = time_ns

    def _add_log(self, record: Log, writer: WriterRow) -> None:
        run = self._runs.get(record.run_id) or self._load_run(record.run_id, record.time_ns)
        run.logs += 1
        if record.component != OWN_COMPONENT:
            run.own += 1
            if record.level == "error":
                run.errors += 1
        elif "gap" in record.attributes:
            record = self._count_gap(record, run, writer)
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
            render_json(record.attributes),
            render_json(record.redacted),
        )
        self._logs.append((row, body))
        self._update_times(run, writer, record.time_ns)

    def _count_gap(self, record: Log, run: RunRow, writer: WriterRow) -> Log:
        """Count the records that a report of the recorder says are missing."""
        count = to_count(record.attributes.get("count"))
        if "count" not in record.attributes:
            # The journal was deleted. Records before this one that are not here never will be.
            count = writer.seen.missing
            record = msgspec.structs.replace(
                record, attributes={**record.attributes, "count": count}
            )
        else:
            writer.dropped += count
        if not str(record.attributes["gap"]).startswith("bytes"):
            run.missing += count
        return record

    def _set_root(self, record: SpanOpen, run: RunRow) -> None:
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

    def _set_process(self, record: SpanOpen, writer: WriterRow) -> None:
        writer.process_span = record.span_id
        writer.pid = to_count(record.attributes.get("pid")) or None
        supervisor = record.attributes.get("supervisor")
        writer.supervisor = supervisor if isinstance(supervisor, str) else None

    def _add_links(self, run: RunRow, span_id: str, links: list[Link]) -> None:
        for link in links:
            self._links.append((run.id, span_id, link.run_id, link.span_id, link.reason))

    def _body(self, record: SpanOpen | SpanClose | Log) -> BodyColumns:
        """Return the columns that refer to a body. `_store_bodies` sets its id."""
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
                    return None, info.spilled_bytes, '{"lost":"its file is missing"}'
            elif text is None:
                return NO_BODY
            else:
                data = _decode_base64(text) if info.encoding == "base64" else text.encode()
            if info.original_bytes is not None:
                note = _encode(
                    {"original_bytes": info.original_bytes, "sha256": info.original_sha256}
                ).decode()
        return self._queue_body(data, record.time_ns, note)

    def _queue_body(self, data: bytes, time_ns: int, note: str = NO_TEXT) -> BodyColumns:
        columns: list[int | str | None] = [NO_ID, len(data), note]
        self._pending.append(columns)
        self._texts.append((data, time_ns))
        self._pending_bytes += len(data)
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._store_bodies()
        return columns

    def _store_bodies(self) -> None:
        """Store the pending bodies, and set their ids in the rows."""
        ids = self._bodies.put_many(self._texts, self._tenant_id)
        for columns, body_id in zip(self._pending, ids, strict=True):
            columns[0] = body_id
        self._pending, self._texts, self._pending_bytes = [], [], 0

    # --- rows that exist already ----------------------------------------------------------------

    def _load_writer(self, name: str, run_id: str | None, time_ns: int) -> WriterRow:
        row = self._connection.execute(
            "SELECT id, seen, first_ns, last_ns, pid, supervisor, process_span, ended, tenant"
            " FROM writers"
            " WHERE writer = ?",
            (name,),
        ).fetchone()
        if row is None:
            # An external exporter is not a process that can crash.
            ended = "imported" if is_external_writer(name) else None
            cursor = self._connection.execute(
                "INSERT INTO writers(writer, first_ns, last_ns, seen, tenant, ended)"
                " VALUES (?, ?, ?, '[]', ?, ?)",
                (name, time_ns, time_ns, self._tenant, ended),
            )
            assert cursor.lastrowid is not None
            writer = WriterRow(cursor.lastrowid, SeqRanges(), time_ns, time_ns)
            writer.ended = ended
        else:
            # Otherwise a tenant could mark seqs of another tenant's writer as seen.
            self._refuse_foreign(row[8], run_id or "?", f"writer {name}")
            writer = WriterRow(row[0], SeqRanges.parse(row[1]), row[2], row[3])
            writer.pid, writer.supervisor, writer.process_span, writer.ended = row[4:8]
            writer.is_stamped = writer.ended is not None and withdraw_crash_stamps.exists(
                self._connection, writer
            )
        if is_external_writer(name):
            writer.is_external = self._nested.any_order = True
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
        """Raise if a run or writer is another tenant's. The caller rolls back the batch."""
        if owner != self._tenant:
            raise ForeignRunError(
                f"{what[:120]}: belongs to another tenant (expected {self._tenant})."
                " Nothing was stored.",
                run_id,
            )

    def _load_span(self, record: SpanClose | SpanUpdate, run: RunRow, writer: WriterRow) -> SpanRow:
        """Load a span that this batch did not open, or create its row."""
        row = self._connection.execute(SELECT_SPAN, (record.span_id, run.id)).fetchone()
        if row is not None:
            span = load_span(row)
        else:
            # The opening is missing, or arrives later.
            run.spans += 1
            span = SpanRow(
                run.id,
                run.spans_before + run.spans,
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
        """Merge openings into rows that exist because a close or update arrived first."""
        runs = {run.id: run for run in self._runs.values()}
        writers = {writer.id: writer for writer in self._writers.values()}
        for key, span in list(self._spans.items()):
            if span.id is not None:
                continue
            row = self._connection.execute(SELECT_SPAN, (span.span_id, span.run)).fetchone()
            if row is None:
                continue
            known = self._spans[key] = load_span(row)
            self._merge_counted(known, span, runs[span.run], writers[span.writer])
        # Merged spans keep their numbers. The others are renumbered without gaps.
        counts: Counter[int] = Counter()
        for span in self._spans.values():
            if span.id is None:
                counts[span.run] += 1
                span.number = runs[span.run].spans_before + counts[span.run]

    def _merge_counted(self, known: SpanRow, span: SpanRow, run: RunRow, writer: WriterRow) -> None:
        """Merge two rows of one span, of which each was counted, and count the result."""
        run.spans -= 1
        if known.seq is not None and span.seq is not None and span.type not in OWN_TYPES:
            run.own -= 1
        for row in (known, span):
            if row.status is not None:
                self._subtract_span(row, run)
        self._merge(known, span)
        if known.status is not None:
            run.errors += known.status != "ok"
            if known.seq is not None:
                self._count_span(known, run, writer, known.started_ns + (known.duration_ns or 0))

    def _merge(self, known: SpanRow, span: SpanRow) -> None:
        """Merge an opening, and its end if known, into a row that existed before."""
        if known.status is not None and span.status is not None:
            known.attributes = {**known.attributes, **span.attributes}  # two closes
        else:
            known.attributes = {**span.attributes, **known.attributes}
        if span.status is not None:
            known.status, known.duration_ns = span.status, span.duration_ns
            known.end_seq, known.output = span.end_seq, span.output
        if span.redacted:
            _add_counts(known, span.redacted)
        if known.seq is None:
            for name in _OPENING_FIELDS:
                setattr(known, name, getattr(span, name))
        elif span.seq is not None and span.writer == known.writer:
            # Two openings have this id: the later one adds what the first lacks.
            if _refines(span.type, known.type):
                known.type, known.name = span.type, span.name
            if _is_empty(known.input):
                known.input = span.input

    def write(self) -> None:
        """Write all rows, in a few statements."""
        connection = self._connection
        self._store_bodies()
        if not write_spans(connection, self._spans.values()):
            self._merge_late_openings()
            write_spans(connection, self._spans.values())
        insert(connection, INSERT_LOGS, [(*row, *body) for row, body in self._logs])
        if self._nested.any_order:
            logs = (row for row, _ in self._logs)
            groups = join_call_bodies.find_groups(self._spans.values(), logs)
            join_call_bodies.join(connection, groups)
        connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?)", self._links)
        connection.executemany("INSERT OR IGNORE INTO unknown VALUES (?, ?, ?, ?)", self._unknown)
        write_runs(connection, self._runs.values())
        write_writers(connection, self._writers.values())
        self._rollups.write(connection)


def _get_tenant(connection: sqlite3.Connection, name: str) -> int:
    """Return the row id of a tenant, which is created if it is new."""
    if not is_tenant(name):
        raise UsageError(f"{name[:80]!r}: not a valid tenant name.")
    connection.execute("INSERT OR IGNORE INTO tenants(name) VALUES (?)", (name,))
    query = "SELECT id FROM tenants WHERE name = ?"
    tenant_id: int = connection.execute(query, (name,)).fetchone()[0]
    return tenant_id


def _decode_base64(text: str) -> bytes:
    """Return the decoded bytes, or the text itself if it is not valid base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


_OPENING_FIELDS = ("writer", "seq", "parent_id", "started_ns", "type", "name", "component", "input")


def _refines(type_: str, before: str) -> bool:
    """Return whether a later opening names the span: its first one did not know its type."""
    is_own = type_ in OWN_TYPES or type_ in MODEL_CALL_TYPES
    return not is_own and (type_ == before == "handoff" or (before == "step" and type_ != before))


def _is_empty(body: BodyColumns) -> bool:
    return body[1] in (None, NO_BODY[1])


def _add_counts(span: SpanRow, counts: dict[str, int]) -> None:
    merged = dict(span.redacted or {})
    for rule, count in counts.items():
        merged[rule] = merged.get(rule, 0) + count
    span.redacted = merged
