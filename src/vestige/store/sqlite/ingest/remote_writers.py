"""Writers on other machines, whose locks cannot be checked here.

Each has a row. Only its own machine knows whether it has ended, and reports it
(fleet/client/ship.py); then the row is `over`. If nothing arrives from a writer for a long time,
its open spans are closed, and later records can correct that (collector/crash_detection.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from vestige.errors import ParcelError
from vestige.limits import REMOTE_SEEN_MAX

TABLES = """
CREATE TABLE remote_writers (     -- processes of other machines, whose records were sent here
  writer      TEXT PRIMARY KEY,   -- writers.writer
  over        INTEGER NOT NULL DEFAULT 0, -- 1: its machine reported its end, and sent everything
  fault       TEXT                -- what faulthandler wrote there while it died
) WITHOUT ROWID;
"""

HEARD = """
ALTER TABLE remote_writers ADD COLUMN heard_ns INTEGER; -- when records of it last arrived
"""


def has_writer(connection: sqlite3.Connection, writer: str) -> bool:
    query = "SELECT 1 FROM writers WHERE writer = ?"
    return connection.execute(query, (writer,)).fetchone() is not None


def register(connection: sqlite3.Connection, writers: Iterable[str]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO remote_writers(writer) VALUES (?)", [(each,) for each in writers]
    )


def record_contact(connection: sqlite3.Connection, writers: Iterable[str], at_ns: int) -> None:
    connection.executemany(
        "UPDATE remote_writers SET heard_ns = ? WHERE writer = ?",
        [(at_ns, each) for each in writers],
    )


def find_silent(connection: sqlite3.Connection, before_ns: int) -> set[str]:
    """Return running writers with open spans, of which nothing arrived since `before_ns`."""
    return {row[0] for row in connection.execute(_SILENT, (before_ns,))}


def validate_seen(connection: sqlite3.Connection, writers: Iterable[str]) -> None:
    """Raise if the seqs of a writer have too many gaps.

    That is not a journal, and its ranges are read and written with every batch.
    """
    query = "SELECT length(seen) FROM writers WHERE writer = ?"
    for writer in writers:
        if connection.execute(query, (writer,)).fetchone()[0] > REMOTE_SEEN_MAX:
            raise ParcelError(
                f"writer {writer}: too many of its records are missing (expected ranges of at"
                f" most {REMOTE_SEEN_MAX} characters). Nothing was stored."
            )


def mark_ended(connection: sqlite3.Connection, writer: str, fault: str | None, tenant: str) -> bool:
    """Mark a writer as ended. Return False if the tenant has no such remote writer."""
    cursor = connection.execute(
        "UPDATE remote_writers SET over = 1, fault = coalesce(?, fault)"
        " WHERE writer = (SELECT writer FROM writers WHERE writer = ? AND tenant = ?)",
        (fault, writer, tenant),
    )
    return cursor.rowcount > 0


def find_running(connection: sqlite3.Connection) -> set[str]:
    return {
        row[0] for row in connection.execute("SELECT writer FROM remote_writers WHERE over = 0")
    }


def find_fault(connection: sqlite3.Connection, writer: str) -> str | None:
    query = "SELECT fault FROM remote_writers WHERE writer = ?"
    row = connection.execute(query, (writer,)).fetchone()
    return row[0] if row else None


# Rows that are older than the column `heard_ns` have the time of the last record only.
_SILENT = """
SELECT r.writer FROM remote_writers r JOIN writers w ON w.writer = r.writer
WHERE NOT r.over AND coalesce(r.heard_ns, w.last_ns) < ?
  AND EXISTS (SELECT 1 FROM spans s WHERE s.writer = w.id AND s.status IS NULL)
"""
