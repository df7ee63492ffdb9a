"""The embedded store: one SQLite file, write-ahead logged.

    with SqliteStore.open(home.store) as store: ...              # takes records in
    with SqliteStore.open(home.store, readonly=True) as store:    # answers questions
    with SqliteStore.open(home.store, readonly=True, tenant="acme") as store:    # of its runs alone

A reader opens the file read-only and never waits for the writer. One transaction takes
in a batch and moves the journal's offset: a kill in between loses nothing, doubles nothing.
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
    Headless,
    OpenSpan,
    Position,
    Pruned,
    RetentionPolicy,
    Rows,
    RunFilter,
    RunPage,
    Searched,
    SearchQuery,
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
    """See `Store` in store/protocol.py for what each method promises."""

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
        """Whose runs alone can be seen here; None: all there are."""
        self._bodies = Bodies(connection)
        self._read_spill = read_spill
        self._synced = connection.total_changes
        """How many changes were known to be on disk when `sync` was last asked."""
        self._file = database_file.identity(path)
        self.frozen = False
        """Read where nobody could write: what is written later is not seen here, nor looked for."""

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

        `lasting`: it is to survive a power cut. `synced`: so is each transaction, as soon as it is
        committed; else the last ones may be gone then, though never half of one.
        `tenant`: in every query there are only its runs, and what belongs to them.
        """
        assert readonly or tenant is None, "a writer says with each batch whose it is"
        frozen = False
        try:
            if readonly:
                connection, frozen = database_file.connect_to_read(path)
                database_file.require_version(connection, path)
                if tenant is not None:
                    tenant_views.install_tenant_views(connection, tenant)
            else:
                database_file.make_file(path)
                connection = database_file.connect(path.absolute().as_uri())
                mode = "FULL" if synced else "NORMAL" if lasting else "OFF"
                # So that pruning can give space back; takes effect while the file is new.
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
        """False: the file was deleted, moved or replaced. What is written here now, nobody finds."""
        return self._file is not None and database_file.identity(self.path) == self._file

    def sync(self) -> None:
        changes = self._connection.total_changes
        if changes == self._synced:
            return
        # A commit is in the log, which SQLite itself writes through only now and then. Nobody has
        # locks on that file, which closing it would lose (https://sqlite.org/howtocorrupt.html).
        for path in (f"{self.path}-wal", self.path.parent):
            with suppress(FileNotFoundError):  # a store that is not to last has no log
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        self._synced = changes  # not before: one that failed is to be asked again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            # Damaged inside, or locked for too long: found out only while reading or writing.
            raise StoreError(f"{self.path}: cannot be read or written ({error}).") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # Inside another one, by `together`: then it is undone alone, and kept with the others.
        begin, commit, undo = _PART if self._connection.in_transaction else _WHOLE
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
    def together(self) -> Iterator[None]:
        """What is appended inside is committed at the end, all at once. One that fails alone is
        undone alone."""
        with self._transaction():
            yield

    # --- the collector's side -----------------------------------------------------------------

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        with self._transaction() as connection:
            ingest = Ingest(connection, self._bodies, self._read_spill, tenant)
            ingest.take(records)
            ingest.write()
            if position is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO journals VALUES (?, ?, ?)",
                    (position.writer, position.generation, position.offset),
                )
                if malformed:
                    _count_malformed(connection, position.writer, malformed)
        return ingest.taken

    def append_pieces(self, pieces: Iterable[Sequence[AnyRecord] | SpanBatch]) -> int:
        with self._transaction() as connection:
            ingest = Ingest(connection, self._bodies, self._read_spill)
            for piece in pieces:
                if isinstance(piece, SpanBatch):
                    ingest.take_block(piece)
                else:
                    ingest.take(piece)
            ingest.write()
        return ingest.taken

    def append_remote(
        self,
        records: Sequence[AnyRecord],
        ends: Sequence[tuple[str, str | None]] = (),
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[int, int]:
        with self._transaction() as connection:
            # One that is known, and not as remote, has a journal here, and is watched by its lock.
            query = "SELECT 1 FROM writers WHERE writer = ?"
            new = [
                writer
                for writer in {record.writer for record in records}
                if connection.execute(query, (writer,)).fetchone() is None
            ]
            taken = self.append(records, tenant=tenant)
            writers = {record.writer for record in records}
            remote_writers.note(connection, new)
            remote_writers.heard(connection, writers, clock.SYSTEM.now_ns())
            remote_writers.refuse_holes(connection, writers)
            ended = sum(
                remote_writers.end(connection, writer, fault, tenant) for writer, fault in ends
            )
        return taken, ended

    def remote_alive(self) -> set[str]:
        return remote_writers.alive(self._connection)

    def remote_silent(self, before_ns: int) -> set[str]:
        return remote_writers.silent(self._connection, before_ns)

    def headless(self, before_ns: int) -> Sequence[Headless]:
        return external_spans.find_rootless(self._connection, before_ns)

    def find_remote_fault(self, writer: str) -> str | None:
        return remote_writers.find_fault(self._connection, writer)

    def positions(self) -> Mapping[tuple[str, int], int]:
        rows = self._connection.execute("SELECT writer, generation, offset FROM journals")
        return {(writer, generation): offset for writer, generation, offset in rows}

    def forget_position(self, writer: str, generation: int) -> None:
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

    def end_writer(self, writer: str, how: str) -> None:
        self._connection.execute("UPDATE writers SET ended = ? WHERE writer = ?", (how, writer))

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        self._connection.executemany(
            "UPDATE runs SET imported_ns = ? WHERE run_id = ?", [(at_ns, one) for one in run_ids]
        )

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> Pruned:
        """A dry run does it all and takes it back, so that its numbers are true."""
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
            # As a script: it steps once for each page, and `execute` would stop after the first.
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

    def forget_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.forget_note(connection, run_id, note_id, tenant)

    def get_fact(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_fact(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    # --- the query side -------------------------------------------------------------------------

    def list_runs(self, wanted: RunFilter) -> Sequence[RunInfo]:
        return run_loader.list_runs(self._connection, wanted, self.tenant)

    def look_for_runs(self, wanted: RunFilter) -> RunPage:
        return run_loader.search_runs(self._connection, wanted, self.tenant)

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        return run_loader.conversations(self._connection, run_ids)

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]:
        return run_loader.find_runs(self._connection, id_or_prefix)

    def run_ids(self) -> Sequence[str]:
        return [row[0] for row in self._connection.execute("SELECT run_id FROM runs")]

    def load_run(self, run_id: str, *, with_lines: bool = True) -> Run:
        check_cancelled()
        run = run_loader.find_run(self._connection, run_id, with_lines=with_lines)
        if run is None:
            where = (
                f" in {self.path}" if self.tenant is None else ""
            )  # a path is not theirs to know
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

    def search(self, wanted: SearchQuery, after: str | None = None, limit: int = 100) -> Searched:
        if wanted.expression:
            # Here: what starts processes takes time to load, and few questions need it.
            from vestige.store.sqlite.read import isolated_query

            return isolated_query.search(self.path, self.tenant, wanted, after, limit)
        return search.search(self._connection, wanted, after, limit)

    def query(self, sql: str, skip: int, limit: int) -> Rows:
        try:
            return self.query_here(sql, skip, limit)
        except sql_sandbox.SlowFunctionError:
            from vestige.store.sqlite.read import isolated_query

            return isolated_query.query(self.path, self.tenant, sql, skip, limit)

    def query_here(self, sql: str, skip: int, limit: int, seconds: float | None = None) -> Rows:
        """In this process; see `ask.query`."""
        connection, _ = database_file.connect_to_read(self.path)
        try:
            shadow = (
                None
                if self.tenant is None
                else tenant_views.install_tenant_views(connection, self.tenant)
            )
            with on_cancel(connection.interrupt):
                return sql_sandbox.query(
                    connection, sql, skip, limit, self.read_body, shadow, seconds
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
        """Where the store is now: `changes` after it are those that come."""
        return change_feed.here(self._connection)

    def changes(
        self, after: change_feed.Cursor, run_id: str | None = None, limit: int = LIVE_BATCH
    ) -> change_feed.Changes:
        """What was written since, at most `limit` rows of each kind. Of one run, or of all."""
        return change_feed.since(self._connection, after, run_id, limit)

    def sizes(self) -> dict[str, int]:
        """What is in here, for `doctor`. A tenant's store has no file of its own: 0 bytes."""
        counts = {
            table: self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("runs", "spans", "logs", "bodies")
        }
        query = "SELECT coalesce(sum(texts), 0), coalesce(sum(size_bytes), 0) FROM sheets"
        tiny, tiny_bytes = self._connection.execute(query).fetchone()
        counts["bodies"] += tiny
        if self.tenant is not None:
            # As they were: how small they are kept depends on what others have recorded.
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


_WHOLE = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_PART = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))

# An import is no process that could have died: what it leaves open, its source left open.
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
