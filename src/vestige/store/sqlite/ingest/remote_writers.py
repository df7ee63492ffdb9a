"""Writers of other machines: their locks are not here, so somebody has to tell that they ended.

A writer whose records came from elsewhere has a row. While it is not `over`, nobody says that it
died: only its own machine knows that (fleet/client/ship.py). One that was not heard of for long has
its open spans closed all the same, in a way that it can correct (collector/crash_detection.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from vestige.errors import ParcelError
from vestige.limits import REMOTE_SEEN_MAX

TABLES = """
CREATE TABLE remote_writers (     -- processes of other machines, whose records were sent here
  writer      TEXT PRIMARY KEY,   -- writers.writer
  over        INTEGER NOT NULL DEFAULT 0, -- 1: its machine said that it is gone, and all was sent
  fault       TEXT                -- what faulthandler wrote there while it died
) WITHOUT ROWID;
"""

HEARD = """
ALTER TABLE remote_writers ADD COLUMN heard_ns INTEGER; -- when records of it last came here
"""


def note(connection: sqlite3.Connection, writers: Iterable[str]) -> None:
    """These came from elsewhere."""
    connection.executemany(
        "INSERT OR IGNORE INTO remote_writers(writer) VALUES (?)", [(one,) for one in writers]
    )


def heard(connection: sqlite3.Connection, writers: Iterable[str], at_ns: int) -> None:
    connection.executemany(
        "UPDATE remote_writers SET heard_ns = ? WHERE writer = ?", [(at_ns, one) for one in writers]
    )


def silent(connection: sqlite3.Connection, before_ns: int) -> set[str]:
    """Those with open spans that are not over, and were not heard of since."""
    return {row[0] for row in connection.execute(_SILENT, (before_ns,))}


def refuse_holes(connection: sqlite3.Connection, writers: Iterable[str]) -> None:
    """Numbers with holes everywhere are no journal, and their set is read and written each time."""
    query = "SELECT length(seen) FROM writers WHERE writer = ?"
    for writer in writers:
        if connection.execute(query, (writer,)).fetchone()[0] > REMOTE_SEEN_MAX:
            raise ParcelError(
                f"writer {writer}: too many of its records are missing (a set of"
                f" {REMOTE_SEEN_MAX} characters). Nothing was taken in."
            )


def end(connection: sqlite3.Connection, writer: str, fault: str | None, tenant: str) -> bool:
    """It is gone; False: it is none of them, or of another tenant."""
    cursor = connection.execute(
        "UPDATE remote_writers SET over = 1, fault = coalesce(?, fault)"
        " WHERE writer = (SELECT writer FROM writers WHERE writer = ? AND tenant = ?)",
        (fault, writer, tenant),
    )
    return cursor.rowcount > 0


def alive(connection: sqlite3.Connection) -> set[str]:
    return {
        row[0] for row in connection.execute("SELECT writer FROM remote_writers WHERE over = 0")
    }


def find_fault(connection: sqlite3.Connection, writer: str) -> str | None:
    query = "SELECT fault FROM remote_writers WHERE writer = ?"
    row = connection.execute(query, (writer,)).fetchone()
    return row[0] if row else None


# Rows of before there was `heard_ns`: their own last word is all that is known.
_SILENT = """
SELECT r.writer FROM remote_writers r JOIN writers w ON w.writer = r.writer
WHERE NOT r.over AND coalesce(r.heard_ns, w.last_ns) < ?
  AND EXISTS (SELECT 1 FROM spans s WHERE s.writer = w.id AND s.status IS NULL)
"""
