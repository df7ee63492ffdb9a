"""The connection that all parts of a SQLite store share, and the conversion of its errors."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from vestige.errors import StoreError, StoreNotWritableError
from vestige.store.cancellation import check_cancelled
from vestige.store.interface.ingest import ReadSpill
from vestige.store.sqlite import database_file
from vestige.store.sqlite.bodies.body_store import Bodies

_NOT_WRITABLE: Final = frozenset(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
)
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


def convert_error(
    error: sqlite3.Error, path: Path, tenant: str | None = None, done: str = "read or written"
) -> StoreError:
    """Return the StoreError for an error of SQLite. Raise if the read was cancelled."""
    check_cancelled()
    # Tenants must not see paths of the server.
    where = str(path) if tenant is None else "store"
    message = f"{where}: cannot be {done} ({error})."
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_WRITABLE:
        return StoreNotWritableError(message, str(error))
    return StoreError(message)


Class = TypeVar("Class", bound=type[SqliteConnection])


def converts_errors(cls: Class) -> Class:
    """Decorate a class so that its public methods raise StoreError instead of sqlite3.Error."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            convert = _convert_generator if inspect.isgeneratorfunction(method) else _convert
            setattr(cls, name, convert(method))
    return cls


def _convert(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def converted(self: SqliteConnection, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise convert_error(error, self.path, self.tenant) from error

    return converted


def _convert_generator(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @wraps(method)
    def converted(self: SqliteConnection, *args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise convert_error(error, self.path, self.tenant) from error

    return converted
