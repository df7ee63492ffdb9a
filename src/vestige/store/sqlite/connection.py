"""The connection that all parts of a SQLite store share, with its transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestige.store.interface.ingest import ReadSpill
from vestige.store.sqlite import database_file
from vestige.store.sqlite.bodies.body_store import Bodies

_OUTERMOST = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_NESTED = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))


class SqliteConnection:
    """A connection to a store, with the bodies that are read and written over it."""

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
