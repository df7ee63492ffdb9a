"""The embedded store: one SQLite file with a write-ahead log.

    with SqliteStore.open(home.store) as store: ...               # to write
    with SqliteStore.open(home.store, readonly=True) as store:    # to read
    with SqliteStore.open(home.store, readonly=True, tenant="acme") as store:    # its runs only

A reader opens the file read-only and never waits for the writer. One transaction stores
a batch and the journal's offset, so a killed process neither loses nor duplicates records.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from vestige._runtime import clock
from vestige.errors import NotFoundError, StoreError
from vestige.limits import LIVE_BATCH, LOG_PAGES
from vestige.record.note import Note
from vestige.record.run import LogInfo, Run, RunInfo
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord, BodyInfo
from vestige.store.cancellation import check_cancelled, on_cancel
from vestige.store.protocol import (
    CheckResult,
    ConversationInfo,
    OpenSpan,
    Position,
    PruneResult,
    QueryRows,
    RetentionPolicy,
    RootlessTrace,
    RunFilter,
    RunPage,
    SearchQuery,
    SearchResult,
    SpanRef,
    SupervisedEnd,
    WriterInfo,
)
from vestige.store.span_batches import SpanBatch
from vestige.store.sqlite import database_file, notes, retention, schema, tenant_views
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest import external_spans, remote_writers
from vestige.store.sqlite.ingest.batch_ingest import Ingest, ReadSpill
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges
from vestige.store.sqlite.read import change_feed, run_loader, search, sql_sandbox

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _no_spill(writer: str, seq: int, info: BodyInfo) -> bytes | None:
    return None


class SqliteStore:
    """A store in one SQLite file. The methods are documented in store/protocol.py."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        read_spill: ReadSpill,
        tenant: str | None = None,
    ) -> None:
        self._connection = connection
        self.path = path
        self.tenant = tenant
        """The tenant whose runs are visible. None: all runs are visible."""
        self._bodies = Bodies(connection)
        self._read_spill = read_spill
        self._synced = connection.total_changes
        """The value of `total_changes` at the last `sync`."""
        self._file = database_file.find_identity(path)
        self.frozen = False
        """True if the file was opened as immutable. Later writes are then not visible."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        readonly: bool = False,
        read_spill: ReadSpill = _no_spill,
        lasting: bool = True,
        synced: bool = False,
        tenant: str | None = None,
    ) -> SqliteStore:
        """Open a store; a writer creates and migrates it.

        `lasting`: the file survives a power cut. `synced`: each committed transaction does, too;
        otherwise the last transactions may be missing afterwards, but never in part.
        `tenant`: queries see only its runs, and rows that belong to them.
        """
        assert readonly or tenant is None, "a writer passes the tenant with each batch"
        frozen = False
        try:
            if readonly:
                connection, frozen = database_file.connect_readonly(path)
                database_file.require_version(connection, path)
                if tenant is not None:
                    tenant_views.install_tenant_views(connection, tenant)
            else:
                database_file.create_file(path)
                connection = database_file.connect(path.absolute().as_uri())
                mode = "FULL" if synced else "NORMAL" if lasting else "OFF"
                # Lets pruning shrink the file. It takes effect only while the file is new.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute(f"PRAGMA journal_mode = {'WAL' if lasting else 'MEMORY'}")
                connection.execute(f"PRAGMA synchronous = {mode}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
                schema.migrate(connection, path)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: cannot be opened as a store ({error}).") from error
        store = cls(connection, path, read_spill, tenant)
        store.frozen = frozen
        return store

    def close(self) -> None:
        self._connection.close()

    def is_in_place(self) -> bool:
        """Return False if the file was deleted, moved or replaced, so that writes are lost."""
        return self._file is not None and database_file.find_identity(self.path) == self._file

    def sync(self) -> None:
        changes = self._connection.total_changes
        if changes == self._synced:
            return
        # A commit is in the log, which SQLite itself rarely flushes. Closing that file is safe,
        # because SQLite has no locks on it (https://sqlite.org/howtocorrupt.html).
        for path in (f"{self.path}-wal", self.path.parent):
            with suppress(FileNotFoundError):  # a store that is not `lasting` has no log
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        self._synced = changes  # after fsync, so that a failed flush is repeated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            # A damaged or locked file is noticed only while reading or writing.
            raise StoreError(f"{self.path}: cannot be read or written ({error}).") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # A nested transaction is rolled back alone, and committed with the outer one.
        begin, commit, undo = _NESTED if self._connection.in_transaction else _OUTERMOST
        self._connection.execute(begin)
        try:
            yield self._connection
            self._connection.execute(commit)
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have ended it by itself
                for statement in undo:
                    self._connection.execute(statement)
            self._bodies.clear_caches()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._transaction():
            yield

    # --- writing --------------------------------------------------------------------------------

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        with self._transaction() as connection:
            ingest = Ingest(connection, self._bodies, self._read_spill, tenant)
            ingest.add_records(records)
            ingest.write()
            if position is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO journals VALUES (?, ?, ?)",
                    (position.writer, position.generation, position.offset),
                )
                if malformed:
                    _count_malformed(connection, position.writer, malformed)
        return ingest.new_count

    def append_batches(self, batches: Iterable[Sequence[AnyRecord] | SpanBatch]) -> int:
        with self._transaction() as connection:
            ingest = Ingest(connection, self._bodies, self._read_spill)
            for batch in batches:
                if isinstance(batch, SpanBatch):
                    ingest.add_spans(batch)
                else:
                    ingest.add_records(batch)
            ingest.write()
        return ingest.new_count

    def append_remote(
        self,
        records: Sequence[AnyRecord],
        ends: Sequence[tuple[str, str | None]] = (),
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[int, int]:
        """Store records from another machine, and the reported ends of its writers.

        Return how many records were new, and how many writers ended.
        """
        with self._transaction() as connection:
            writers = {record.writer for record in records}
            # A known writer that is not remote has a journal here, and is watched by its lock.
            new = [writer for writer in writers if not self.has_writer(writer)]
            new_count = self.append(records, tenant=tenant)
            remote_writers.register(connection, new)
            remote_writers.record_contact(connection, writers, clock.SYSTEM.now_ns())
            remote_writers.validate_seen(connection, writers)
            ended = sum(
                remote_writers.mark_ended(connection, writer, fault, tenant)
                for writer, fault in ends
            )
        return new_count, ended

    def find_running_remote_writers(self) -> set[str]:
        return remote_writers.find_running(self._connection)

    def find_silent_remote_writers(self, before_ns: int) -> set[str]:
        return remote_writers.find_silent(self._connection, before_ns)

    def find_rootless_traces(self, before_ns: int) -> Sequence[RootlessTrace]:
        return external_spans.find_rootless_traces(self._connection, before_ns)

    def find_remote_fault(self, writer: str) -> str | None:
        return remote_writers.find_fault(self._connection, writer)

    def positions(self) -> Mapping[tuple[str, int], int]:
        rows = self._connection.execute("SELECT writer, generation, offset FROM journals")
        return {(writer, generation): offset for writer, generation, offset in rows}

    def delete_position(self, writer: str, generation: int) -> None:
        self._connection.execute(
            "DELETE FROM journals WHERE writer = ? AND generation = ?", (writer, generation)
        )

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

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        row = self._connection.execute(_SUPERVISED_END, (writer,)).fetchone()
        return SupervisedEnd(_decode(row[0]), row[1]) if row else None

    def open_spans(self, writer: str) -> Sequence[OpenSpan]:
        rows = self._connection.execute(
            "SELECT r.run_id, s.span_id, s.type, s.name, s.seq, s.started_ns"
            " FROM spans s JOIN runs r ON r.id = s.run JOIN writers w ON w.id = s.writer"
            " WHERE w.writer = ? AND s.status IS NULL ORDER BY s.seq",
            (writer,),
        )
        return [OpenSpan(*row) for row in rows]

    def has_seen(self, writer: str, seq: int) -> bool:
        row = self._connection.execute(
            "SELECT seen FROM writers WHERE writer = ?", (writer,)
        ).fetchone()
        return row is not None and seq in SeqRanges.parse(row[0])

    def has_writer(self, writer: str) -> bool:
        query = "SELECT 1 FROM writers WHERE writer = ?"
        return self._connection.execute(query, (writer,)).fetchone() is not None

    def has_run(self, run_id: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row is not None

    def end_writer(self, writer: str, outcome: str) -> None:
        self._connection.execute("UPDATE writers SET ended = ? WHERE writer = ?", (outcome, writer))

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        self._connection.executemany(
            "UPDATE runs SET imported_ns = ? WHERE run_id = ?",
            [(at_ns, run_id) for run_id in run_ids],
        )

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> PruneResult:
        """Prune. A dry run prunes and rolls back, so that its numbers are exact."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            pruned = retention.prune(connection, self._bodies, policy, now_ns)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        finally:
            self._bodies.clear_caches()
        connection.execute("ROLLBACK" if dry_run else "COMMIT")
        if not dry_run and (pruned.runs or pruned.bodies):
            # A script, because the pragma steps once per page and `execute` steps only once.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return pruned

    def pin(self, run_id: str, pinned: bool = True) -> None:
        self._connection.execute(
            "UPDATE runs SET pinned = ? WHERE run_id = ?", (int(pinned), run_id)
        )

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        with self._transaction() as connection:
            search.store_findings(connection, run, results)

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.add_note(connection, note, tenant)

    def delete_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.delete_note(connection, run_id, note_id, tenant)

    def get_fact(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_fact(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    # --- reading --------------------------------------------------------------------------------

    def list_runs(self, run_filter: RunFilter) -> Sequence[RunInfo]:
        return run_loader.list_runs(self._connection, run_filter, self.tenant)

    def search_runs(self, run_filter: RunFilter) -> RunPage:
        return run_loader.search_runs(self._connection, run_filter, self.tenant)

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        return run_loader.conversations(self._connection, run_ids)

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]:
        return run_loader.find_runs(self._connection, id_or_prefix)

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

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        check_cancelled()
        return self._bodies.read(body_id, start, end)

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        return self._bodies.read_many(body_ids)

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        return search.find_spans(self._connection, id_or_prefix)

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        return search.find_attribute(self._connection, value, limit)

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        return search.links_to(self._connection, run_id, span_id)

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

    def interrupt(self) -> None:
        """Stop the statement that this connection executes; any thread may."""
        self._connection.interrupt()

    def notes(self, run_id: str) -> Sequence[Note]:
        return notes.read_notes(self._connection, run_id)

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        return search.check_results(self._connection, run_ids)

    def cursor(self) -> change_feed.Cursor:
        """Return the current end of the change feed."""
        return change_feed.read_cursor(self._connection)

    def changes(
        self, after: change_feed.Cursor, run_id: str | None = None, limit: int = LIVE_BATCH
    ) -> change_feed.Changes:
        """Return the changes of all runs or one, at most `limit` rows of each kind."""
        return change_feed.read_changes(self._connection, after, run_id, limit)

    def sizes(self) -> dict[str, int]:
        """Return the row counts and sizes. A tenant has no file of its own, so 0 bytes."""
        counts = {
            table: self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("runs", "spans", "logs", "bodies")
        }
        query = "SELECT coalesce(sum(texts), 0), coalesce(sum(size_bytes), 0) FROM sheets"
        tiny, tiny_bytes = self._connection.execute(query).fetchone()
        counts["bodies"] += tiny
        if self.tenant is not None:
            # Uncompressed sizes: the compressed ones depend on records of other tenants.
            own = "SELECT coalesce(sum(size_bytes), 0) FROM bodies WHERE evicted_ns IS NULL"
            body_bytes = self._connection.execute(own).fetchone()[0] + tiny_bytes
            return {**counts, "file_bytes": 0, "body_bytes": body_bytes}
        return {
            **counts,
            "file_bytes": self.path.stat().st_size,
            "body_bytes": self._bodies.stored_bytes(),
        }


def _count_malformed(connection: sqlite3.Connection, writer: str, count: int) -> None:
    connection.execute(
        "INSERT INTO writers(writer, first_ns, last_ns, seen, malformed) VALUES (?, 0, 0, '[]', ?)"
        " ON CONFLICT (writer) DO UPDATE SET malformed = malformed + excluded.malformed",
        (writer, count),
    )


_OUTERMOST = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_NESTED = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))

# An import is not a process that can crash. Its open spans are open in the source.
_UNFINISHED = """
WHERE ended IS NULL
   OR ended <> 'imported' AND id IN (SELECT writer FROM spans WHERE status IS NULL)
"""

_SUPERVISED_END = """
SELECT root.attributes, r.ended_ns FROM writers w
JOIN spans p ON p.span_id = w.process_span
JOIN runs r ON r.id = p.run
JOIN spans root ON root.span_id = r.root_span AND root.run = r.id
WHERE w.writer = ? AND r.ended_ns IS NOT NULL AND root.attributes IS NOT NULL
"""
