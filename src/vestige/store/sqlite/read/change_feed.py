"""What was written to the store since a place in it: new spans, ends of older ones, log lines.

    cursor = store.cursor()
    changes = store.changes(cursor)       # later; changes.cursor is where to go on

Rows are numbered as they are written, by one writer at a time, so a number is a place; one
that was pruned is not given again. The end of a span that was there already has a number of its own (the table `closes`, which keeps the
latest). A cursor holds nothing else: it works after a restart, and for any reader.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vestige.record.run import RunInfo
from vestige.store.sqlite.ingest.rows import TOP
from vestige.store.sqlite.read import run_loader

_NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the store: the last number of each kind."""

    span: int
    close: int
    log: int

    def __str__(self) -> str:
        return f"{self.span}-{self.close}-{self.log}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """ValueError: it is no cursor."""
        if not re.fullmatch(r"\d{1,19}-\d{1,19}-\d{1,19}", text, re.ASCII):
            raise ValueError("expected a cursor such as 120-14-33, as an event's id has it")
        numbers = [int(part) for part in text.split("-")]
        if max(numbers) > _NUMBER_MAX:
            raise ValueError("expected a cursor such as 120-14-33, as an event's id has it")
        return cls(*numbers)


@dataclass(frozen=True, slots=True)
class SpanChange:
    """A span as it is now."""

    cursor: Cursor
    """To go on after it."""
    run: int
    run_id: str
    number: int
    span_id: str
    parent_id: str | None
    type: str
    name: str
    component: str
    status: str | None
    started_ns: int
    duration_ns: int | None


@dataclass(frozen=True, slots=True)
class LogChange:
    cursor: Cursor
    run: int
    run_id: str
    span_id: str | None
    time_ns: int
    level: str
    component: str
    message: str


@dataclass(frozen=True, slots=True)
class Changes:
    """In the order of their cursors; `runs` are those that they belong to, as they are now."""

    spans: Sequence[SpanChange]
    logs: Sequence[LogChange]
    runs: Sequence[RunInfo]
    cursor: Cursor
    more: bool
    """There are more of them: ask again at once."""
    lost: bool = False
    """The cursor is older than what is kept, or of another store: begin anew at `cursor`."""


def here(connection: sqlite3.Connection) -> Cursor:
    return Cursor(*connection.execute(_HERE).fetchone()[:3])


def since(connection: sqlite3.Connection, after: Cursor, run_id: str | None, limit: int) -> Changes:
    with _one_look(connection):
        row = connection.execute(_HERE).fetchone()
        now, first_close = Cursor(*row[:3]), row[3]
        beyond = after.span > now.span or after.close > now.close or after.log > now.log
        if beyond or after.close + 1 < first_close:
            return Changes([], [], [], now, more=False, lost=True)
        run = None if run_id is None else _number_of(connection, run_id)
        return _read(connection, after, now, run, limit)


@contextmanager
def _one_look(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements see the same state."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _number_of(connection: sqlite3.Connection, run_id: str) -> int:
    row = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return row[0] if row else -1


def _read(
    connection: sqlite3.Connection, after: Cursor, now: Cursor, run: int | None, limit: int
) -> Changes:
    only = "" if run is None else f" AND s.run = {run:d}"
    cursor = after
    spans: list[SpanChange] = []
    new = connection.execute(_NEW.format(only=only), (after.span, now.span, limit)).fetchall()
    for place, *row in new:
        cursor = replace(cursor, span=place)
        spans.append(SpanChange(cursor, *row))
    if len(new) < limit:
        cursor = replace(cursor, span=now.span)
    ended = connection.execute(_ENDED.format(only=only), (after.close, now.close, limit)).fetchall()
    for place, *row in ended:
        cursor = replace(cursor, close=place)
        spans.append(SpanChange(cursor, *row))
    if len(ended) < limit:
        cursor = replace(cursor, close=now.close)
    said = connection.execute(_SAID.format(only=only), (after.log, now.log, limit)).fetchall()
    logs: list[LogChange] = []
    for place, *row in said:
        cursor = replace(cursor, log=place)
        logs.append(LogChange(cursor, *row))
    if len(said) < limit:
        cursor = replace(cursor, log=now.log)
    changed = {span.run_id for span in spans} | {log.run_id for log in logs}
    runs = _runs(connection, changed)
    return Changes(spans, logs, runs, cursor, limit in (len(new), len(ended), len(said)))


def _runs(connection: sqlite3.Connection, run_ids: Iterable[str]) -> list[RunInfo]:
    found = []
    for run_id in sorted(run_ids):
        found += [info for info in run_loader.find_runs(connection, run_id) if info.id == run_id]
    return found


_HERE = f"""
SELECT ({TOP.format(table="spans")}),
       coalesce((SELECT max(id) FROM main.closes), 0),
       ({TOP.format(table="logs")}),
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
_SAID = """
SELECT s.id, s.run, r.run_id, s.span_id, s.time_ns, s.level, s.component, s.message
FROM logs s JOIN runs r ON r.id = s.run
WHERE s.id > ? AND s.id <= ?{only} ORDER BY s.id LIMIT ?
"""
