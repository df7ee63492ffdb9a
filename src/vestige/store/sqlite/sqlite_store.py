"""The embedded store: one SQLite file with a write-ahead log.

    with SqliteStore.open(home.store) as store: ...               # to write
    with SqliteStore.open(home.store, readonly=True) as store:    # to read
    with SqliteStore.open(home.store, readonly=True, tenant="acme") as store:    # its runs only

A reader opens the file read-only and never waits for the writer. One transaction stores
a batch and the journal's offset, so a killed process neither loses nor duplicates records.

Elsewhere: the methods that write, writer.py; that read, reader.py; code outside store/ opens a
store with store/open.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vestige.limits import LOG_PAGES
from vestige.record.types import BodyInfo
from vestige.store.interface.ingest import ReadSpill
from vestige.store.sqlite import database_file, schema, tenant_views
from vestige.store.sqlite.convert_errors import convert_error
from vestige.store.sqlite.reader import SqliteReader
from vestige.store.sqlite.writer import SqliteWriter

if TYPE_CHECKING:
    from vestige.store.protocol import Store


def no_spill(writer: str, seq: int, info: BodyInfo) -> bytes | None:
    return None


class SqliteStore(SqliteReader, SqliteWriter):
    """A store in one SQLite file."""

    root: Path | None = None
    frozen = False
    """True if the file was opened as immutable. Later writes are then not visible."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        readonly: bool = False,
        read_spill: ReadSpill = no_spill,
        lasting: bool = True,
        synced: bool = False,
        tenant: str | None = None,
    ) -> Self:
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
            raise convert_error(error, path, done="opened as a store") from error
        store = cls(connection, path, read_spill, tenant)
        store.frozen = frozen
        return store

    def is_current(self) -> bool:
        if self.frozen:
            return False  # a copy for a full disk: there may be space again
        try:
            return self.is_in_place() and schema.version(self._connection) == schema.VERSION
        except sqlite3.Error:
            return False

    def find_problems(self) -> Sequence[str]:
        return ()

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise convert_error(error, self.path, self.tenant) from error


if TYPE_CHECKING:

    def _check_interface(store: SqliteStore) -> Store:
        return store
