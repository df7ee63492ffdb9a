"""The methods of a SQLite store that write: records, notes, findings, retention.

The methods are documented in store/interface/.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from vestige._runtime import clock
from vestige.record.note import Note
from vestige.record.run import RunInfo
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord, Log, SpanClose
from vestige.store.protocol import CheckResult, Position, PruneResult, RetentionPolicy, WriterInfo
from vestige.store.sqlite import database_file, notes, retention
from vestige.store.sqlite.connection import SqliteConnection
from vestige.store.sqlite.convert_errors import convert_error, converts_errors
from vestige.store.sqlite.ingest import remote_writers
from vestige.store.sqlite.ingest.batch_ingest import Ingest
from vestige.store.sqlite.read import findings


@converts_errors
class SqliteWriter(SqliteConnection):
    """The writing half of a store."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self._transaction():
                yield
        except sqlite3.Error as error:
            raise convert_error(error, self.path, self.tenant) from error

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        with self._transaction() as connection:
            ingest = self._make_ingest(tenant)
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

    def _make_ingest(self, tenant: str) -> Ingest:
        return Ingest(self._connection, self._bodies, self._read_spill, tenant)

    def append_remote(
        self,
        records: Sequence[AnyRecord],
        ends: Sequence[tuple[str, str | None]] = (),
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[int, int]:
        with self._transaction() as connection:
            writers = {record.writer for record in records}
            # A known writer that is not remote has a journal here, and is watched by its lock.
            new = [
                writer for writer in writers if not remote_writers.has_writer(connection, writer)
            ]
            new_count = self.append(records, tenant=tenant)
            remote_writers.register(connection, new)
            remote_writers.record_contact(connection, writers, clock.SYSTEM.now_ns())
            remote_writers.validate_seen(connection, writers)
            ended = sum(
                remote_writers.mark_ended(connection, writer, fault, tenant)
                for writer, fault in ends
            )
        return new_count, ended

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

    def is_in_place(self) -> bool:
        return self._file is not None and database_file.find_identity(self.path) == self._file

    def delete_position(self, writer: str, generation: int) -> None:
        self._connection.execute(
            "DELETE FROM journals WHERE writer = ? AND generation = ?", (writer, generation)
        )

    def end_writer(self, writer: str, outcome: str) -> None:
        self._connection.execute("UPDATE writers SET ended = ? WHERE writer = ?", (outcome, writer))

    def stamp_writer(
        self, writer: WriterInfo, records: Iterable[Log | SpanClose], outcome: str
    ) -> None:
        with self._transaction():
            ingest = self._make_ingest(writer.tenant)
            ingest.add_stamp(records)
            ingest.write()
            self.end_writer(writer.writer, outcome)

    def finish_rootless_runs(self) -> int:
        return self._connection.execute(_FINISH_ROOTLESS).rowcount

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
            findings.store_findings(connection, run, results)

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.add_note(connection, note, tenant)

    def edit_note(self, run_id: str, note_id: str, text: str, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.edit_note(connection, run_id, note_id, text, tenant)

    def delete_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        with self._transaction() as connection:
            return notes.delete_note(connection, run_id, note_id, tenant)

    def get_fact(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_fact(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


def _count_malformed(connection: sqlite3.Connection, writer: str, count: int) -> None:
    connection.execute(
        "INSERT INTO writers(writer, first_ns, last_ns, seen, malformed) VALUES (?, 0, 0, '[]', ?)"
        " ON CONFLICT (writer) DO UPDATE SET malformed = malformed + excluded.malformed",
        (writer, count),
    )


_FINISH_ROOTLESS = """
UPDATE runs INDEXED BY runs_rootless SET outcome = 'interrupted', ended_ns = last_ns,
  duration_ns = max(0, last_ns - started_ns)
WHERE root_span IS NULL AND outcome = 'running' AND imported_ns IS NULL
  AND NOT EXISTS (SELECT 1 FROM spans s JOIN writers w ON w.id = s.writer
    WHERE s.run = runs.id AND w.ended IS NULL)
  AND NOT EXISTS (SELECT 1 FROM logs l JOIN writers w ON w.id = l.writer
    WHERE l.run = runs.id AND w.ended IS NULL)
"""
