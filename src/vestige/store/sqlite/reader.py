"""The methods of a SQLite store that read. They are documented in store/interface/."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from vestige.errors import NotFoundError
from vestige.limits import LIVE_BATCH
from vestige.record.note import Note
from vestige.record.run import LogInfo, Run, RunInfo
from vestige.store.cancellation import check_cancelled, on_cancel
from vestige.store.protocol import (
    Ancestor,
    Changes,
    CheckResult,
    ConversationInfo,
    LatestCall,
    Losses,
    ModelSum,
    NoteSummary,
    OpenSpan,
    OutlineRows,
    QueryRows,
    RecordedSum,
    RootlessTrace,
    RunFilter,
    RunInputsOutputs,
    RunPage,
    SearchQuery,
    SearchResult,
    SpanFacts,
    SpanRef,
    StoreSizes,
    Sum,
    SupervisedEnd,
    WriterInfo,
)
from vestige.store.sqlite import database_file, notes, tenant_views
from vestige.store.sqlite.connection import SqliteConnection
from vestige.store.sqlite.convert_errors import convert_error, converts_errors
from vestige.store.sqlite.ingest import external_spans, remote_writers
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges
from vestige.store.sqlite.read import (
    change_feed,
    comparison_candidates,
    findings,
    hourly_sums,
    outline_rows,
    run_inputs_outputs,
    run_loader,
    search,
    span_lookup,
    sql_sandbox,
    stats,
)

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@converts_errors
class SqliteReader(SqliteConnection):
    """The reading half of a store."""

    # --- writers and journals -------------------------------------------------------------------

    def positions(self) -> Mapping[tuple[str, int], int]:
        rows = self._connection.execute("SELECT writer, generation, offset FROM journals")
        return {(writer, generation): offset for writer, generation, offset in rows}

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        rows = self._connection.execute(
            "SELECT writer, pid, supervisor, first_ns, last_ns, seen, malformed, dropped, ended,"
            f" tenant FROM writers {_UNFINISHED if unfinished else ''} ORDER BY id"
        )
        found = []
        for writer, pid, supervisor, first_ns, last_ns, text, malformed, *rest in rows:
            seen = SeqRanges.parse(text)
            found.append(
                WriterInfo(
                    writer,
                    pid,
                    supervisor,
                    first_ns,
                    last_ns,
                    seen.last,
                    seen.missing,
                    malformed,
                    *rest,
                )
            )
        return found

    def has_writer(self, writer: str) -> bool:
        return remote_writers.has_writer(self._connection, writer)

    def has_seen(self, writer: str, seq: int) -> bool:
        row = self._connection.execute(
            "SELECT seen FROM writers WHERE writer = ?", (writer,)
        ).fetchone()
        return row is not None and seq in SeqRanges.parse(row[0])

    def find_foreign_ids(
        self, run_ids: Iterable[str], writers: Iterable[str], tenant: str
    ) -> tuple[set[str], set[str]]:
        found = []
        for table, column, ids in (("runs", "run_id", run_ids), ("writers", "writer", writers)):
            query = (
                f"SELECT {column} FROM {table} WHERE {column} IN"  # fixed names
                " (SELECT value FROM json_each(?)) AND tenant != ?"
            )
            rows = self._connection.execute(query, (json.dumps(list(ids)), tenant))
            found.append({row[0] for row in rows})
        return found[0], found[1]

    def open_spans(self, writer: str) -> Sequence[OpenSpan]:
        rows = self._connection.execute(
            "SELECT r.run_id, s.span_id, s.type, s.name, s.seq, s.started_ns, p.type"
            " FROM spans s JOIN runs r ON r.id = s.run JOIN writers w ON w.id = s.writer"
            " LEFT JOIN spans p ON p.run = s.run AND p.span_id = s.parent_id"
            " WHERE w.writer = ? AND s.status IS NULL ORDER BY s.seq",
            (writer,),
        )
        return [OpenSpan(*row) for row in rows]

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        row = self._connection.execute(_SUPERVISED_END, (writer,)).fetchone()
        return SupervisedEnd(_decode(row[0]), row[1]) if row else None

    def find_running_remote_writers(self) -> set[str]:
        return remote_writers.find_running(self._connection)

    def find_silent_remote_writers(self, before_ns: int) -> set[str]:
        return remote_writers.find_silent(self._connection, before_ns)

    def find_rootless_traces(self, before_ns: int) -> Sequence[RootlessTrace]:
        return external_spans.find_rootless_traces(self._connection, before_ns)

    def find_remote_fault(self, writer: str) -> str | None:
        return remote_writers.find_fault(self._connection, writer)

    # --- runs and spans -------------------------------------------------------------------------

    def list_runs(self, run_filter: RunFilter) -> Sequence[RunInfo]:
        return run_loader.list_runs(self._connection, run_filter, self.tenant)

    def search_runs(self, run_filter: RunFilter) -> RunPage:
        return run_loader.search_runs(self._connection, run_filter, self.tenant)

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        return run_loader.conversations(self._connection, run_ids)

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]:
        return run_loader.find_runs(self._connection, id_or_prefix)

    def has_run(self, run_id: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row is not None

    def run_ids(self) -> Sequence[str]:
        return [row[0] for row in self._connection.execute("SELECT run_id FROM runs")]

    def load_run(self, run_id: str, *, with_logs: bool = True) -> Run:
        check_cancelled()
        run = run_loader.find_run(self._connection, run_id, with_logs=with_logs)
        if run is None:
            # Tenants must not see paths of the server.
            where = f" in {self.path}" if self.tenant is None else ""
            raise NotFoundError(f"{run_id}: no such run{where}. See `vestige list`.")
        return run

    def read_log(self, row: int) -> LogInfo:
        return run_loader.read_log(self._connection, row)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            with change_feed.snapshot(self._connection):
                yield
        except sqlite3.Error as error:
            raise convert_error(error, self.path, self.tenant) from error

    def find_last_good_run(self, run_id: str) -> str | None:
        return comparison_candidates.find_last_good_run(self._connection, run_id)

    def find_previous_run(self, run_id: str) -> str | None:
        return comparison_candidates.find_previous_run(self._connection, run_id)

    def read_run_inputs_outputs(self, run_ids: Sequence[str]) -> Mapping[str, RunInputsOutputs]:
        return run_inputs_outputs.read_run_inputs_outputs(self._connection, run_ids)

    def find_partial_runs(self, run_ids: Sequence[str]) -> set[str]:
        return comparison_candidates.find_partial_runs(self._connection, run_ids)

    def sum_body_bytes(self, run_id: str) -> int:
        return comparison_candidates.sum_body_bytes(self._connection, run_id)

    def read_debugging_hints(self, run_ids: Sequence[str] | None, limit: int) -> Sequence[object]:
        return comparison_candidates.read_debugging_hints(self._connection, run_ids, limit)

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        return span_lookup.find_spans(self._connection, id_or_prefix)

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        return span_lookup.find_attribute(self._connection, value, limit)

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        return span_lookup.links_to(self._connection, run_id, span_id)

    def find_previous_span(self, run_id: str, type: str, name: str) -> tuple[str, str] | None:
        return comparison_candidates.find_previous_span(self._connection, run_id, type, name)

    def read_span_facts(self, run_ids: Sequence[str], spans_max: int) -> Iterator[SpanFacts]:
        yield from comparison_candidates.read_span_facts(self._connection, run_ids, spans_max)

    def read_ancestry(self, run_id: str, span_ids: Sequence[str]) -> Sequence[Ancestor]:
        return comparison_candidates.read_ancestry(self._connection, run_id, span_ids)

    def read_outline(
        self, short_id: str, after: str | None, limit: int, message_max: int
    ) -> OutlineRows:
        run = int(short_id[1:])
        return outline_rows.read_outline(self._connection, run, after, limit, message_max)

    def read_losses(self, short_id: str) -> Losses:
        return outline_rows.read_losses(self._connection, int(short_id[1:]))

    # --- bodies, text and SQL -------------------------------------------------------------------

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        check_cancelled()
        return self._bodies.read(body_id, start, end)

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        yield from self._bodies.read_many(body_ids)

    def search(
        self, query: SearchQuery, after: str | None = None, limit: int = 100
    ) -> SearchResult:
        if query.expression:
            # Imported here, because subprocess loads slowly and few searches need it.
            from vestige.store.sqlite.read import isolated_query

            return isolated_query.search(self.path, self.tenant, query, after, limit)
        return search.search(self._connection, query, after, limit)

    def query(self, sql: str, skip: int, limit: int) -> QueryRows:
        try:
            return self.query_in_process(sql, skip, limit)
        except sql_sandbox.SlowFunctionError:
            from vestige.store.sqlite.read import isolated_query

            return isolated_query.query(self.path, self.tenant, sql, skip, limit)

    def query_in_process(
        self, sql: str, skip: int, limit: int, seconds: float | None = None
    ) -> QueryRows:
        """Run a query in this process. The arguments are those of `sql_sandbox.query`."""
        connection, _ = database_file.connect_readonly(self.path)
        try:
            views = None
            if self.tenant is not None:
                views = tenant_views.install_tenant_views(connection, self.tenant)
            with on_cancel(connection.interrupt):
                return sql_sandbox.query(
                    connection, sql, skip, limit, self.read_body, views, seconds
                )
        finally:
            connection.close()

    # --- sums -----------------------------------------------------------------------------------

    def sum_rollups(self, by: str, since_day: str | None) -> Sequence[Sum]:
        return stats.sum_rollups(self._connection, by, since_day)

    def sum_models(self, by: str, since_day: str | None) -> Sequence[ModelSum]:
        return stats.sum_models(self._connection, by, since_day)

    def find_first_day(self) -> str | None:
        return stats.find_first_day(self._connection)

    def sum_hours(self, since_ns: int) -> Mapping[int, Sum]:
        return hourly_sums.sum_hours(self._connection, since_ns)

    def sum_hour_models(self, since_ns: int) -> Sequence[ModelSum] | None:
        return hourly_sums.sum_hour_models(self._connection, since_ns)

    def sum_model_calls(self, run_ids: Sequence[str]) -> Sequence[RecordedSum]:
        return stats.sum_model_calls(self._connection, run_ids)

    def read_latest_calls(self, since_ns: int | None, runs_max: int) -> Sequence[LatestCall]:
        return stats.read_latest_calls(self._connection, since_ns, runs_max)

    def count_tool_calls(self, run_ids: Iterable[str]) -> Mapping[str, tuple[int, int]]:
        return stats.count_tool_calls(self._connection, run_ids)

    def read_prompt_assemblies(self, run_ids: Iterable[str], limit: int) -> Sequence[int]:
        return stats.read_prompt_assemblies(self._connection, run_ids, limit)

    def read_responses(self, run_ids: Iterable[str], limit: int, size_max: int) -> Sequence[int]:
        return stats.read_responses(self._connection, run_ids, limit, size_max)

    # --- notes, findings, sizes, changes --------------------------------------------------------

    def notes(self, run_id: str) -> Sequence[Note]:
        return notes.read_notes(self._connection, run_id)

    def summarize_notes(self, run_ids: Sequence[str]) -> Mapping[str, NoteSummary]:
        return notes.summarize_notes(self._connection, run_ids)

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        return findings.check_results(self._connection, run_ids)

    def sizes(self) -> StoreSizes:
        counts = {
            table: self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("runs", "spans", "logs", "bodies")
        }
        query = "SELECT coalesce(sum(texts), 0), coalesce(sum(size_bytes), 0) FROM sheets"
        packed, packed_bytes = self._connection.execute(query).fetchone()
        counts["bodies"] += packed
        if self.tenant is not None:
            # Uncompressed sizes: the compressed ones depend on records of other tenants.
            own = "SELECT coalesce(sum(size_bytes), 0) FROM bodies WHERE evicted_ns IS NULL"
            body_bytes = self._connection.execute(own).fetchone()[0] + packed_bytes
            return StoreSizes(**counts, file_bytes=0, body_bytes=body_bytes)
        file_bytes = self.path.stat().st_size
        return StoreSizes(**counts, file_bytes=file_bytes, body_bytes=self._bodies.stored_bytes())

    def cursor(self) -> str:
        return change_feed.read_cursor(self._connection)

    def is_cursor(self, text: str) -> bool:
        return change_feed.is_cursor(text)

    def changes(self, after: str, run_id: str | None = None, limit: int = LIVE_BATCH) -> Changes:
        return change_feed.read_changes(self._connection, after, run_id, limit)


# An import is not a process that can crash. Its open spans are open in the source.
_UNFINISHED = """
WHERE ended IS NULL
   OR ended <> 'imported' AND id IN (SELECT writer FROM spans WHERE status IS NULL)
"""

_SUPERVISED_END = """
SELECT root.attributes, r.ended_ns FROM writers w
JOIN spans p ON p.span_id = w.process_span AND p.type = 'process'
JOIN runs r ON r.id = p.run
JOIN spans root ON root.span_id = r.root_span AND root.run = r.id
WHERE w.writer = ? AND r.ended_ns IS NOT NULL AND root.attributes IS NOT NULL
"""
