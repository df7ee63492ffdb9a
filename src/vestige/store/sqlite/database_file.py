"""The file of a store: made for its owner alone, opened to write or to read, known again."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from vestige.errors import StoreError
from vestige.store.sqlite import schema

_CANNOT_MAKE = frozenset((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY))


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_file(path: Path) -> None:
    """An empty one, for its owner alone. One that is there is not opened: closing it would let go of
    the locks that SQLite may hold on it in this process (store/sqlite/change_detector.py)."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None)
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def connect_to_read(path: Path) -> tuple[sqlite3.Connection, bool]:
    """And whether it is frozen."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = connect(uri)
        schema.version(connection)
    except sqlite3.OperationalError as error:
        # WAL wants to make files beside the store. Where nobody can, nobody writes either.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _CANNOT_MAKE or not path.exists():
            raise
        if unwritten_bytes(path):
            raise StoreError(
                f"{path}: what was last written is in its log, which can be read only where files"
                " can be made. Copy the folder, and ask the copy."
            ) from error
        return connect(f"{uri}&immutable=1"), True
    return connection, False


def unwritten_bytes(path: Path) -> int:
    """How much of a store is in its log alone: somebody has it open, or was killed."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def require_version(connection: sqlite3.Connection, path: Path) -> None:
    found = schema.version(connection)
    if found != schema.VERSION:
        older = found < schema.VERSION
        raise StoreError(
            f"{path}: store version {found}, this vestige reads {schema.VERSION}. "
            + ("Run `vestige collect --once` to migrate it." if older else "Upgrade vestige.")
        )
