"""The changes of a store since a cursor: new spans, ends of older spans, and logs.

    cursor = store.cursor()
    changes = store.changes(cursor)       # later; continue at changes.cursor

One writer at a time numbers the rows, and ids of pruned rows are not reused, so an id is a
position. The end of an older span has an id of its own, in the table `closes`, which has the latest
ends only. A cursor consists of these ids, so it is valid after a restart and for any reader.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vestige.record.run import RunInfo
from vestige.store.interface.changes import Changes, LogChange, SpanChange
from vestige.store.sqlite.ingest.batch_rows import HIGHEST_ID
from vestige.store.sqlite.read import run_loader

_NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A position in the store: the last id of each kind of row."""

    span: int
    close: int
    log: int

    def __str__(self) -> str:
        return f"{self.span}-{self.close}-{self.log}"

    @classmethod
    def parse(cls, text: str) -> FeedPosition:
        """Parse the text of a cursor. Raise ValueError if it is not valid."""
        if re.fullmatch(r"\d{1,19}-\d{1,19}-\d{1,19}", text, re.ASCII):
            numbers = [int(part) for part in text.split("-")]
            if max(numbers) <= _NUMBER_MAX:
                return cls(*numbers)
        raise ValueError("expected a cursor such as 120-14-33, which is the id of an event")


def is_cursor(text: str) -> bool:
    try:
        FeedPosition.parse(text)
    except ValueError:
        return False
    return True


def read_cursor(connection: sqlite3.Connection) -> str:
    """Return the current end of the feed."""
    return str(FeedPosition(*connection.execute(_CURSOR).fetchone()[:3]))


def read_changes(
    connection: sqlite3.Connection, cursor: str, run_id: str | None, limit: int
) -> Changes:
    after = FeedPosition.parse(cursor)
    with snapshot(connection):
        row = connection.execute(_CURSOR).fetchone()
        now, first_close = FeedPosition(*row[:3]), row[3]
        beyond = after.span > now.span or after.close > now.close or after.log > now.log
        if beyond or after.close + 1 < first_close:
            return Changes([], [], [], str(now), more=False, lost=True)
        run = None if run_id is None else _find_row(connection, run_id)
        return _read_rows(connection, after, now, run, limit)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all statements inside see the same state of the store."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # SQLite may have ended it by itself
            connection.execute("ROLLBACK")


def _find_row(connection: sqlite3.Connection, run_id: str) -> int:
    row = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return row[0] if row else -1


def _read_rows(
    connection: sqlite3.Connection,
    after: FeedPosition,
    now: FeedPosition,
    run: int | None,
    limit: int,
) -> Changes:
    only = "" if run is None else f" AND s.run = {run:d}"
    cursor = after
    spans: list[SpanChange] = []
    new = connection.execute(_NEW.format(only=only), (after.span, now.span, limit)).fetchall()
    for row_id, *row in new:
        cursor = replace(cursor, span=row_id)
        spans.append(SpanChange(str(cursor), *row))
    if len(new) < limit:
        cursor = replace(cursor, span=now.span)
    ended = connection.execute(_ENDED.format(only=only), (after.close, now.close, limit)).fetchall()
    for row_id, *row in ended:
        cursor = replace(cursor, close=row_id)
        spans.append(SpanChange(str(cursor), *row))
    if len(ended) < limit:
        cursor = replace(cursor, close=now.close)
    new_logs = connection.execute(_LOGS.format(only=only), (after.log, now.log, limit)).fetchall()
    logs: list[LogChange] = []
    for row_id, *row in new_logs:
        cursor = replace(cursor, log=row_id)
        logs.append(LogChange(str(cursor), *row))
    if len(new_logs) < limit:
        cursor = replace(cursor, log=now.log)
    changed = {span.run_id for span in spans} | {log.run_id for log in logs}
    runs = _find_runs(connection, changed)
    return Changes(spans, logs, runs, str(cursor), limit in (len(new), len(ended), len(new_logs)))


def _find_runs(connection: sqlite3.Connection, run_ids: Iterable[str]) -> list[RunInfo]:
    found = []
    for run_id in sorted(run_ids):
        found += [info for info in run_loader.find_runs(connection, run_id) if info.id == run_id]
    return found


_CURSOR = f"""
SELECT ({HIGHEST_ID.format(table="spans")}),
       coalesce((SELECT max(id) FROM main.closes), 0),
       ({HIGHEST_ID.format(table="logs")}),
       coalesce((SELECT min(id) FROM main.closes), 0)
"""
_SPAN = """s.run, r.run_id, s.number, s.span_id, s.parent_id, s.type, s.name, s.component, s.status,
  s.started_ns, s.duration_ns"""
_NEW = f"""
SELECT s.id, {_SPAN} FROM spans s JOIN runs r ON r.id = s.run
WHERE s.id > ? AND s.id <= ?{{only}} ORDER BY s.id LIMIT ?
"""
_ENDED = f"""
SELECT c.id, {_SPAN} FROM closes c CROSS JOIN spans s ON s.id = c.span JOIN runs r ON r.id = s.run
WHERE c.id > ? AND c.id <= ?{{only}} ORDER BY c.id LIMIT ?
"""
_LOGS = """
SELECT s.id, s.run, r.run_id, s.span_id, s.time_ns, s.level, s.component, s.message
FROM logs s JOIN runs r ON r.id = s.run
WHERE s.id > ? AND s.id <= ?{only} ORDER BY s.id LIMIT ?
"""
