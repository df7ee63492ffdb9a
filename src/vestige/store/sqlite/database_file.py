"""Create, open and identify the file of a store."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from vestige.errors import StoreError
from vestige.store.sqlite import schema

_CANNOT_MAKE = frozenset((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY))


def find_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if there is no such file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def create_file(path: Path) -> None:
    """Create an empty file that only its owner can read.

    A file that exists is not opened, because closing it would release the locks that SQLite
    may have on it in this process (change_detector.py).
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None)
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def connect_readonly(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Return a connection, and whether the file was opened as immutable."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = connect(uri)
        schema.version(connection)
    except sqlite3.OperationalError as error:
        # WAL creates files beside the store. Where that is impossible, no process writes.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _CANNOT_MAKE or not path.exists():
            raise
        if get_log_bytes(path):
            raise StoreError(
                f"{path}: the latest records are in its write-ahead log, which can be read only in"
                " a writable folder. Copy the folder and read the copy."
            ) from error
        return connect(f"{uri}&immutable=1"), True
    return connection, False


def get_log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log, which remains if a process is killed."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def copy_files(path: Path, target: Path) -> None:
    """Copy the file and its write-ahead log, where they exist."""
    for suffix in ("", "-wal"):
        if os.path.exists(f"{path}{suffix}"):
            shutil.copyfile(f"{path}{suffix}", f"{target}{suffix}")


def require_version(connection: sqlite3.Connection, path: Path) -> None:
    found = schema.version(connection)
    if found != schema.VERSION:
        older = found < schema.VERSION
        raise StoreError(
            f"{path}: store version {found}, this vestige reads {schema.VERSION}. "
            + ("Run `vestige store collect --once` to migrate it." if older else "Upgrade vestige.")
        )
