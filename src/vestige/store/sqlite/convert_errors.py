"""Convert errors of SQLite to errors of a store, for all public methods of a class."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from vestige.errors import StoreError, StoreNotWritableError
from vestige.store.cancellation import check_cancelled
from vestige.store.sqlite.connection import SqliteConnection

_NOT_WRITABLE: Final = frozenset(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
)


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
