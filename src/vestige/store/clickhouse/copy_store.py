"""Copy a store from a SQLite file to ClickHouse, in steps that can be repeated after a kill.

    for progress in copy_to_clickhouse(path, "clickhouse://db/team"): ...
    verify_copy(path, "clickhouse://db/team")

All ids stay the same (`r12`, cursors, bodies). A step copies some thousand rows of one table in one
commit, together with the id up to which the table is copied, so a copy that was interrupted goes
on where it was. Nothing may write to either store meanwhile.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from vestige.errors import StoreError, UsageError
from vestige.limits import MIB
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.clickhouse_store import ClickHouseStore
from vestige.store.clickhouse.ingest.merge_in_memory import Staging
from vestige.store.clickhouse.ingest.row_export import make_body_row
from vestige.store.sqlite.sqlite_store import SqliteStore

ROWS_PER_STEP: Final = 20_000
BODY_BYTES_PER_STEP: Final = 16 * MIB
_SOURCE: Final = "copy:source"
_DONE: Final = "copy:done:"


class Progress(NamedTuple):
    """The rows of a table that are copied."""

    table: str
    rows: int


Read = Callable[[sqlite3.Connection, int], Sequence[Sequence[Any]]]
"""Reads the rows of a table after an id. The first value of a row is its id."""


def copy_to_clickhouse(path: Path, address: str) -> Iterator[Progress]:
    """Copy all rows. Yield after each step."""
    with (
        SqliteStore.open(path, readonly=True) as source,
        ClickHouseStore.open(parse_address(address)) as target,
    ):
        _claim(source, target)
        yield from _copy_bodies(source, target)
        for table, read in _TABLES.items():
            yield from _copy_table(source, target, table, read)
        _advance_counters(source, target)


def _claim(source: SqliteStore, target: ClickHouseStore) -> None:
    """Mark the target as a copy of this source. Raise UsageError if it is not empty."""
    stat = source.path.stat()
    identity = f"{stat.st_dev}:{stat.st_ino}"
    known = target.get_fact(_SOURCE)
    if known == identity:
        return
    if known is not None or target.run_ids():
        raise UsageError(
            "store copy: the target is not empty (expected a store that `vestige store init` made,"
            " or an unfinished copy of the same file)."
        )
    target.set_fact(_SOURCE, identity)


def _copy_table(
    source: SqliteStore, target: ClickHouseStore, table: str, read: Read
) -> Iterator[Progress]:
    done = int(target.get_fact(_DONE + table) or 0)
    total = 0
    with closing(_connect(source.path)) as connection:
        while rows := read(connection, done):
            done = rows[-1][0]
            _commit(target, table, [row[1:] for row in rows], done)
            total += len(rows)
            yield Progress(table, total)


def _copy_bodies(source: SqliteStore, target: ClickHouseStore) -> Iterator[Progress]:
    """Copy the bodies that records refer to, each under its id."""
    done = int(target.get_fact(_DONE + "bodies") or 0)
    total = 0
    with closing(_connect(source.path)) as connection:
        references = iter(connection.execute(_REFERENCES, (done,)).fetchall())
        batch: list[Sequence[Any]] = []
        size = 0
        for body_id, tenant, first_ns in references:
            for found, data in source.read_bodies([body_id]):
                batch.append((tenant, found, sha256(data).digest()[:16], len(data), first_ns, data))
                size += len(data)
            if size > BODY_BYTES_PER_STEP or len(batch) >= ROWS_PER_STEP:
                total += len(batch)
                _commit_bodies(target, batch, body_id)
                yield Progress("bodies", total)
                batch, size = [], 0
        if batch:
            total += len(batch)
            _commit_bodies(target, batch, batch[-1][1])
            yield Progress("bodies", total)


def _commit_bodies(target: ClickHouseStore, batch: Sequence[Sequence[Any]], done: int) -> None:
    def operation(staging: Staging) -> None:
        week = datetime.date.fromisoformat(staging.week)
        staging.extra["bodies"] = [
            make_body_row(tenant, body, size, first_ns, data, week)
            for tenant, body, _, size, first_ns, data in batch
        ]
        staging.extra["body_keys"] = [(row[0], row[2], row[1], week, 0) for row in batch]
        staging.extra["facts"] = [(_DONE + "bodies", str(done), 0)]

    target.run_operation(operation)


def _commit(target: ClickHouseStore, table: str, rows: list[Sequence[Any]], done: int) -> None:
    def operation(staging: Staging) -> None:
        week = datetime.date.fromisoformat(staging.week)
        number = staging.view.number + 1
        staging.extra[table] = [_CONVERT.get(table, _plain)(row, number, week) for row in rows]
        staging.extra["facts"] = [(_DONE + table, str(done), 0)]

    target.run_operation(operation)


def _plain(row: Sequence[Any], number: int, week: datetime.date) -> Sequence[Any]:
    return (*row, 0)


def _with_week(row: Sequence[Any], number: int, week: datetime.date) -> Sequence[Any]:
    return (*row, week, 0)


def _run(row: Sequence[Any], number: int, week: datetime.date) -> Sequence[Any]:
    return (*row, number, week, week, 0)


def _rollup(row: Sequence[Any], number: int, week: datetime.date) -> Sequence[Any]:
    tenant, day, *names, count, errors, duration_ns, histogram, a, b, c, d = row
    buckets = msgspec.json.decode(histogram, type=dict[int, int])
    sums = (count, errors, duration_ns, list(buckets), list(buckets.values()), a, b, c, d)
    return (tenant, datetime.date.fromisoformat(day), *names, *sums, 0)


_CONVERT: Final[dict[str, Callable[[Sequence[Any], int, datetime.date], Sequence[Any]]]] = {
    "runs": _run,
    "spans": _with_week,
    "logs": _with_week,
    "links": _with_week,
    "rollups": _rollup,
}


def _advance_counters(source: SqliteStore, target: ClickHouseStore) -> None:
    """Let new rows of the target have ids after those that were copied."""
    with closing(_connect(source.path)) as connection:
        counters = {
            name: connection.execute(sql).fetchone()[0] or 0 for name, sql in _COUNTERS.items()
        }

    def operation(staging: Staging) -> None:
        for name, highest in counters.items():
            staging.view.counters[name] = max(staging.view.counters[name], highest)
        staging.extra["facts"] = [(f"{_DONE}all", "1", 0)]

    if target.get_fact(f"{_DONE}all") is None:
        target.run_operation(operation)


def verify_copy(path: Path, address: str) -> dict[str, tuple[int, int]]:
    """Compare counts, and a hash of every run and its bodies. Raise StoreError on a difference."""
    with (
        SqliteStore.open(path, readonly=True) as source,
        ClickHouseStore.open(parse_address(address), readonly=True) as target,
    ):
        before, after = source.sizes(), target.sizes()
        counts = {
            name: (getattr(before, name), getattr(after, name))
            for name in ("runs", "spans", "logs")
        }
        for name, (expected, found) in counts.items():
            if expected != found:
                raise StoreError(f"store copy: {found} {name} (expected {expected}).")
        for run_id in source.run_ids():
            if _hash_run(source, run_id) != _hash_run(target, run_id):
                raise StoreError(f"store copy: run {run_id} differs from its source.")
        return counts


def _hash_run(store: SqliteStore | ClickHouseStore, run_id: str) -> bytes:
    """Return a hash of all that a reader sees of a run. Body ids are replaced by their texts."""
    run = store.load_run(run_id)
    digest = sha256(repr((run.info, run.links)).encode())
    refs = [ref for span in run.spans for ref in (span.input, span.output) if ref is not None]
    refs += [log.body for log in run.logs if log.body is not None]
    texts = dict(store.read_bodies(sorted({ref.id for ref in refs if ref.id is not None})))
    for span in run.spans:
        plain = msgspec.structs.replace(span, input=None, output=None)
        digest.update(repr(plain).encode())
        for ref in (span.input, span.output):
            digest.update(texts.get(ref.id or 0, b"") if ref is not None else b"-")
    for log in run.logs:
        digest.update(repr(msgspec.structs.replace(log, body=None)).encode())
    return digest.digest()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _reader(columns: str, table: str, key: str = "x.id") -> Read:
    """Return a function that reads a table in the order of its ids."""
    sql = f"SELECT {key}, {columns} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?"

    def read(connection: sqlite3.Connection, after: int) -> Sequence[Sequence[Any]]:
        return connection.execute(sql, (after, ROWS_PER_STEP)).fetchall()

    return read


def _read_once(sql: str) -> Read:
    """Return a function that reads a small table in one step."""

    def read(connection: sqlite3.Connection, after: int) -> Sequence[Sequence[Any]]:
        return [] if after else [(1, *row) for row in connection.execute(sql)]

    return read


_OF_RUN: Final = "{} x JOIN runs r ON r.id = x.run"
# In the order of the columns in schema.py. Runs come last, so that they are complete when visible.
_TABLES: Final[dict[str, Read]] = {
    "spans": _reader(
        "r.tenant, x.run, x.id, x.number, x.span_id, x.parent_id, x.writer, x.seq, x.started_ns,"
        " x.type, x.name, x.component, x.status, x.duration_ns, x.end_seq, x.attributes,"
        " x.redacted, x.input_body, x.input_bytes, x.input_info, '', x.output_body, x.output_bytes,"
        " x.output_info, ''",
        _OF_RUN.format("spans"),
    ),
    "logs": _reader(
        "r.tenant, x.run, x.id, x.span_id, x.writer, x.seq, x.time_ns, x.level, x.component,"
        " x.message, x.attributes, x.redacted, x.body, x.body_bytes, x.body_info",
        _OF_RUN.format("logs"),
    ),
    "links": _reader(
        "r.tenant, x.run, x.rowid, x.span_id, x.target_run, x.target_span, x.reason",
        _OF_RUN.format("links"),
        "x.rowid",
    ),
    "writers": _reader(
        "x.tenant, x.id, x.writer, x.pid, x.supervisor, x.process_span, x.first_ns, x.last_ns,"
        " x.seen, x.malformed, x.dropped, x.ended",
        "writers x",
    ),
    "journals": _read_once("SELECT writer, generation, offset, '' FROM journals"),
    "remote_writers": _read_once("SELECT writer, over, fault, heard_ns FROM remote_writers"),
    "unknown": _read_once(
        "SELECT w.tenant, u.writer, u.seq, u.run_id, u.line FROM unknown u"
        " JOIN writers w ON w.writer = u.writer"
    ),
    "rollups": _read_once(
        "SELECT tenant, day, component, type, name, model, count, errors, duration_ns, histogram,"
        " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens FROM rollups"
    ),
    "notes": _read_once(
        "SELECT r.tenant, n.run, n.id, n.span_id, n.event_id, n.author, n.created_ns, n.text"
        " FROM notes n JOIN runs r ON r.id = n.run"
    ),
    "runs": _reader(
        "x.tenant, x.id, x.run_id, x.name, x.component, x.conversation_id, x.started_ns, x.last_ns,"
        " x.ended_ns, x.duration_ns, x.outcome, x.root_span, x.span_count, x.log_count,"
        " x.error_count, x.own_count, x.input_tokens, x.output_tokens, x.implicit, x.process_run,"
        " x.pinned, x.imported_ns, x.missing_count",
        "runs x",
    ),
}
_REFERENCES: Final = """
SELECT body, min(tenant), min(at) FROM (
  SELECT s.input_body AS body, r.tenant, s.started_ns AS at FROM spans s JOIN runs r ON r.id = s.run
  UNION ALL SELECT s.output_body, r.tenant, s.started_ns FROM spans s JOIN runs r ON r.id = s.run
  UNION ALL SELECT l.body, r.tenant, l.time_ns FROM logs l JOIN runs r ON r.id = l.run
) WHERE body > ? GROUP BY body ORDER BY body
"""
_COUNTERS: Final = {
    "runs": "SELECT max(seq) FROM sqlite_sequence WHERE name = 'runs'",
    "closes": "SELECT max(seq) FROM sqlite_sequence WHERE name = 'closes'",
    "writers": "SELECT max(id) FROM writers",
    "spans": "SELECT max(id) FROM spans",
    "logs": "SELECT max(id) FROM logs",
    "links": "SELECT max(rowid) FROM links",
    "bodies": f"SELECT max(body) FROM ({_REFERENCES.replace('?', '0')})",
}
