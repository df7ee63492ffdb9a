"""Writers of other machines: their locks are not here, so somebody has to tell that they ended.

A writer whose records came from elsewhere has a row. While it is not `over`, nobody stamps it,
however long it is silent: only its own machine knows whether it is dead (collector/ship.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

TABLES = """
CREATE TABLE remote_writers (     -- processes of other machines, whose records were sent here
  writer      TEXT PRIMARY KEY,   -- writers.writer
  over        INTEGER NOT NULL DEFAULT 0, -- 1: its machine said that it is gone, and all was sent
  fault       TEXT                -- what faulthandler wrote there while it died
) WITHOUT ROWID;
"""


def note(connection: sqlite3.Connection, writers: Iterable[str]) -> None:
    """These came from elsewhere."""
    connection.executemany(
        "INSERT OR IGNORE INTO remote_writers(writer) VALUES (?)", [(one,) for one in writers]
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
