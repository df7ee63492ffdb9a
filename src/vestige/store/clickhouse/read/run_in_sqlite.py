"""A run as a small SQLite database in memory, which the readers of the SQLite engine read.

    image = load_image(client, view, run)
    image.reader.load_run(run_id)

The order of spans, missing parents, losses and outlines of a run are computed in one place, in
store/sqlite/read. An image contains no bodies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.record.types import BodyInfo
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest.merge_in_memory import open_memory
from vestige.store.clickhouse.ingest.staging_rows import (
    LOG_COLUMNS,
    RUN_COLUMNS,
    SPAN_COLUMNS,
    WRITER_COLUMNS,
)
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.sqlite.reader import SqliteReader

_LINK_COLUMNS: Final = "id, run, span_id, target_run, target_span, reason"


class RunImage(msgspec.Struct, frozen=True):
    """The rows of one run, as they were at a commit."""

    row: int
    changed: int
    """The last commit that added records to the run."""
    pinned: int
    connection: sqlite3.Connection
    reader: SqliteReader


def load_image(client: Client, view: View, row: int, changed: int, pinned: int) -> RunImage:
    """Load the rows of a run."""
    connection = open_memory()
    connection.execute("DROP TRIGGER spans_insert_tracked")
    connection.execute("DROP TRIGGER logs_insert_tracked")
    for table, columns in (("spans", SPAN_COLUMNS), ("logs", LOG_COLUMNS)):
        source = view.current(table, "run = {run:Int64}")
        rows = client.query(f"SELECT {columns} FROM {source}", **view.parameters(), run=row)
        _insert(connection, table, columns, rows)
    source = view.current("links", "run = {run:Int64}")
    links = client.query(f"SELECT {_LINK_COLUMNS} FROM {source}", **view.parameters(), run=row)
    _insert(connection, "links", _LINK_COLUMNS.replace("id", "rowid", 1), links)
    source = view.current("runs", "id = {run:Int64}")
    rows = client.query(f"SELECT {RUN_COLUMNS} FROM {source}", **view.parameters(), run=row)
    _insert(connection, "runs", RUN_COLUMNS, rows)
    _load_writers(client, view, connection)
    return RunImage(row, changed, pinned, connection, make_reader(connection))


def make_reader(connection: sqlite3.Connection) -> SqliteReader:
    return SqliteReader(connection, Path("store"), _no_spill)


def _load_writers(client: Client, view: View, connection: sqlite3.Connection) -> None:
    ids = [
        row[0]
        for row in connection.execute("SELECT writer FROM spans UNION SELECT writer FROM logs")
    ]
    for at in range(0, len(ids), 1_000):
        source = view.current("writers", "id IN {keys:Array(Int64)}")
        rows = client.query(
            f"SELECT {WRITER_COLUMNS} FROM {source}",
            **view.parameters(),
            keys=ids[at : at + 1_000],
        )
        _insert(connection, "writers", WRITER_COLUMNS, rows)


def _insert(
    connection: sqlite3.Connection, table: str, columns: str, rows: Iterable[Sequence[Any]]
) -> None:
    marks = ", ".join("?" * len(columns.split(", ")))
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", rows)
    connection.execute("COMMIT")


def _no_spill(writer: str, seq: int, info: BodyInfo) -> bytes | None:
    return None
