"""The methods of a ClickHouse store that write. They are documented in store/interface/.

A transaction collects its writes as operations on a staging database in memory, and commits the
resulting rows at its end. If another server has committed in between, the operations run again on
the new state.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from vestige._runtime import clock
from vestige.errors import StoreError, StoreNotWritableError
from vestige.record.note import Note
from vestige.record.run import RunInfo
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord, Log, SpanClose
from vestige.store.clickhouse import retention
from vestige.store.clickhouse.connection import StoreConnection
from vestige.store.clickhouse.ingest import rollup_compaction, staging_rows
from vestige.store.clickhouse.ingest.commit_log import CommitConflictError, commit, make_attempt
from vestige.store.clickhouse.ingest.merge_in_memory import Staging
from vestige.store.clickhouse.ingest.row_export import export
from vestige.store.clickhouse.read_snapshot import read_view
from vestige.store.protocol import CheckResult, Position, PruneResult, RetentionPolicy, WriterInfo

COMMITS_TRIED_MAX: Final = 50
"""The number of times that a transaction is repeated because other servers commit."""

Result = TypeVar("Result")
Operation = Callable[[Staging], Any]


class _Transaction:
    """The operations of a transaction, and the rows that they make."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.operations: list[Operation] = []

    def run(self, operation: Callable[[Staging], Result]) -> Result:
        """Run an operation, and undo it alone if it fails."""
        connection = self.staging.connection
        extra = {table: list(rows) for table, rows in self.staging.extra.items()}
        connection.execute("SAVEPOINT operation")
        try:
            result = operation(self.staging)
        except BaseException:
            connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")
            self.staging.extra = extra
            self.staging.bodies.clear_caches()
            # Rows that the operation has loaded are undone, too.
            self.staging.forget_loaded()
            raise
        connection.execute("RELEASE operation")
        self.operations.append(operation)
        return result


class ClickHouseWriter(StoreConnection):
    """The writing half of a store."""

    _transaction: _Transaction | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._transaction is not None:
            yield
            return
        self._require_writable()
        transaction = self._transaction = self._begin()
        try:
            yield
            self._commit(transaction)
        finally:
            self._transaction.staging.close()
            self._transaction = None

    def _require_writable(self) -> None:
        if self._readonly:
            raise StoreNotWritableError(
                f"{self._client.address}: opened for reading only.", "opened for reading"
            )

    def _begin(self) -> _Transaction:
        view = read_view(self._client)
        staging = Staging(self._client, view, current_week(), self._read_spill, self._home_id)
        staging.connection.execute("BEGIN")
        return _Transaction(staging)

    def _commit(self, transaction: _Transaction) -> None:
        for _ in range(COMMITS_TRIED_MAX):
            staging = transaction.staging
            batch = export(staging, staging.view.number + 1)
            if not batch:
                return
            try:
                counters = staging.counters()
                commit(self._client, staging.view, batch, counters, make_attempt(), staging.base)
                return
            except CommitConflictError:
                clock.sleep(clock.SYSTEM.fraction() * 0.1)
            again = self._begin()
            for operation in transaction.operations:
                again.run(operation)
            staging.close()
            transaction.staging = again.staging
        raise StoreError(
            f"{self._client.address}: other servers committed {COMMITS_TRIED_MAX} times in between."
            " Send the records again."
        )

    def run_operation(self, operation: Callable[[Staging], Result]) -> Result:
        """Run an operation in the current transaction, or in one of its own."""
        with self.transaction():
            assert self._transaction is not None
            return self._transaction.run(operation)

    # --- records --------------------------------------------------------------------------------

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        batch = list(records)

        def operation(staging: Staging) -> int:
            staging_rows.load_for_records(staging, batch)
            if position is not None:
                staging_rows.load_writers(staging, [position.writer])
            return staging.writer.append(batch, position, malformed, tenant)

        return self.run_operation(operation)

    def append_remote(
        self,
        records: Sequence[AnyRecord],
        ends: Sequence[tuple[str, str | None]] = (),
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[int, int]:
        def operation(staging: Staging) -> tuple[int, int]:
            staging_rows.load_for_records(staging, records)
            staging_rows.load_writers(staging, [writer for writer, _ in ends])
            return staging.writer.append_remote(records, ends, tenant)

        return self.run_operation(operation)

    def sync(self) -> None:
        """Do nothing: a commit is durable when it is acknowledged."""

    def is_in_place(self) -> bool:
        return True

    def delete_position(self, writer: str, generation: int) -> None:
        def operation(staging: Staging) -> None:
            staging.connection.execute(
                "DELETE FROM journals WHERE writer = ? AND generation = ?", (writer, generation)
            )
            staging.extra.setdefault("journals", []).append(
                (writer, generation, 0, self._home_id, 1)
            )

        self.run_operation(operation)

    def end_writer(self, writer: str, outcome: str) -> None:
        def operation(staging: Staging) -> None:
            staging_rows.load_writers(staging, [writer])
            staging.writer.end_writer(writer, outcome)

        self.run_operation(operation)

    def stamp_writer(
        self, writer: WriterInfo, records: Iterable[Log | SpanClose], outcome: str
    ) -> None:
        batch = list(records)

        def operation(staging: Staging) -> None:
            staging_rows.load_for_records(staging, batch)
            staging_rows.load_writers(staging, [writer.writer])
            staging.writer.stamp_writer(writer, batch, outcome)

        self.run_operation(operation)

    def finish_rootless_runs(self) -> int:
        def operation(staging: Staging) -> int:
            rows = retention.find_rootless(staging)
            staging_rows.load_runs_by_row(staging, rows)
            marks = ", ".join(map(str, rows))
            return staging.connection.execute(
                "UPDATE runs SET outcome = 'interrupted', ended_ns = last_ns,"
                " duration_ns = max(0, last_ns - started_ns)"
                f" WHERE id IN ({marks}) AND outcome = 'running'"
            ).rowcount

        if not retention.has_rootless(self._client, self._view()):
            return 0
        return self.run_operation(operation)

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        ids = list(run_ids)

        def operation(staging: Staging) -> None:
            staging_rows.load_runs(staging, ids)
            staging.writer.mark_imported(ids, at_ns)

        if ids:
            self.run_operation(operation)

    def pin(self, run_id: str, pinned: bool = True) -> None:
        def operation(staging: Staging) -> None:
            staging_rows.load_runs(staging, [run_id])
            staging.writer.pin(run_id, pinned)

        self.run_operation(operation)

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> PruneResult:
        def operation(staging: Staging) -> PruneResult:
            plan = retention.plan(staging, policy, now_ns)
            retention.stage(staging, plan, now_ns)
            return plan.result

        if dry_run:
            transaction = self._begin()
            try:
                return retention.plan(transaction.staging, policy, now_ns).result
            finally:
                transaction.staging.close()
        self._require_writable()
        result = self.run_operation(operation)
        retention.drop_empty_weeks(self._client, self._view())
        if rollup_compaction.is_due(self._client, self._view()):
            self.run_operation(rollup_compaction.compact)
        rollup_compaction.drop_old(self._client, self._view())
        return result

    # --- notes, findings and facts --------------------------------------------------------------

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        def operation(staging: Staging) -> None:
            source = staging.view.current("runs", "run_id = {run_id:String}")
            rows = staging.query(
                f"SELECT tenant, id, changed FROM {source} WHERE last_ns = {{last_ns:Int64}}"
                " AND span_count = {spans:Int64} AND log_count = {logs:Int64}"
                " AND error_count = {errors:Int64} AND outcome = {outcome:String}",
                run_id=run.id,
                last_ns=run.last_ns,
                spans=run.span_count,
                logs=run.log_count,
                errors=run.error_count,
                outcome=run.outcome,
            )
            if not rows:
                return  # the run has changed since it was read, or was deleted
            added = staging.extra.setdefault("findings", [])
            for result in results:
                texts = [msgspec.json.encode(each).decode() for each in result.findings]
                for text in texts or (None,):
                    added.append((*rows[0], len(added), result.name, result.version, text, 0))

        self.run_operation(operation)

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        def operation(staging: Staging) -> bool:
            (row,) = staging_rows.load_runs(staging, [note.run_id]) or (None,)
            _load_notes(staging, row)
            added = staging.writer.add_note(note, tenant)
            if added:
                staging.extra.setdefault("notes", []).extend(
                    staging.connection.execute(_NOTE, (note.run_id, note.id))
                )
            return added

        return self.run_operation(operation)

    def edit_note(self, run_id: str, note_id: str, text: str, tenant: str | None = None) -> bool:
        def operation(staging: Staging) -> bool:
            (row,) = staging_rows.load_runs(staging, [run_id]) or (None,)
            _load_notes(staging, row)
            edited = staging.writer.edit_note(run_id, note_id, text, tenant)
            if edited:
                staging.extra.setdefault("notes", []).extend(
                    staging.connection.execute(_NOTE, (run_id, note_id))
                )
            return edited

        return self.run_operation(operation)

    def delete_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        def operation(staging: Staging) -> bool:
            (row,) = staging_rows.load_runs(staging, [run_id]) or (None,)
            _load_notes(staging, row)
            rows = staging.connection.execute(_NOTE, (run_id, note_id)).fetchall()
            deleted = staging.writer.delete_note(run_id, note_id, tenant)
            if deleted:
                staging.extra.setdefault("notes", []).extend((*row[:-1], 1) for row in rows)
            return deleted

        return self.run_operation(operation)

    def get_fact(self, key: str) -> str | None:
        view = self._view()
        source = view.current("facts", "key = {key:String}")
        rows = self._query(view, f"SELECT value FROM {source}", key=key)
        return rows[0][0] if rows else None

    def set_fact(self, key: str, value: str) -> None:
        def operation(staging: Staging) -> None:
            staging.extra.setdefault("facts", []).append((key, value, 0))

        self.run_operation(operation)


def _load_notes(staging: Staging, run: int | None) -> None:
    if run is None or not staging.find_new("notes", [run]):
        return
    source = staging.view.current("notes", "run = {run:Int64}")
    columns = "run, id, span_id, event_id, author, created_ns, text"
    staging.connection.executemany(
        f"INSERT OR IGNORE INTO notes({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        staging.query(f"SELECT {columns} FROM {source}", run=run),
    )


_NOTE = """
SELECT r.tenant, n.run, n.id, n.span_id, n.event_id, n.author, n.created_ns, n.text, 0
FROM notes n JOIN runs r ON r.id = n.run WHERE r.run_id = ? AND n.id = ?
"""


def current_week() -> str:
    """Return the Monday of this week in UTC."""
    today = datetime.datetime.fromtimestamp(clock.SYSTEM.now_ns() / 1e9, datetime.UTC).date()
    return (today - datetime.timedelta(days=today.weekday())).isoformat()
