"""The embedded store: one SQLite file, write-ahead logged.

    with SqliteStore.open(home.store) as store: ...              # takes records in
    with SqliteStore.open(home.store, readonly=True) as store:    # answers questions

A reader opens the file read-only and never waits for the writer. One transaction takes
in a batch and moves the journal's offset: a kill in between loses nothing, doubles nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from vestige.errors import NotFoundError, StoreError
from vestige.record.run import (
    BodyRef,
    LinkInfo,
    LogInfo,
    Run,
    RunInfo,
    SpanInfo,
    in_order,
)
from vestige.record.types import AnyRecord, BodyInfo
from vestige.store import ask, retention, schema, search
from vestige.store.base import (
    CheckResult,
    OpenSpan,
    Place,
    Position,
    Pruned,
    RetentionPolicy,
    Rows,
    RunFilter,
    Searched,
    SupervisedEnd,
    Wanted,
    WriterInfo,
)
from vestige.store.bodies import Bodies
from vestige.store.ingest import Ingest, ReadSpill
from vestige.store.seen import SeenSet

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _no_spill(writer: str, seq: int, info: BodyInfo) -> bytes | None:
    return None


class SqliteStore:
    """See `Store` in store/base.py for what each method promises."""

    def __init__(self, connection: sqlite3.Connection, path: Path, read_spill: ReadSpill) -> None:
        self._connection = connection
        self.path = path
        self._bodies = Bodies(connection)
        self._read_spill = read_spill

    @classmethod
    def open(
        cls, path: Path, *, readonly: bool = False, read_spill: ReadSpill = _no_spill
    ) -> SqliteStore:
        """Open a store; a writer creates and migrates it."""
        try:
            if readonly:
                connection = _connect_to_read(path)
                _require_version(connection, path)
            else:
                if not path.exists():
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                connection = _connect(path.absolute().as_uri())
                # So that pruning can give space back; takes effect while the file is new.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                schema.migrate(connection, path)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: cannot be opened as a store ({error}).") from error
        return cls(connection, path, read_spill)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            # Damaged inside, or locked for too long: found out only while reading or writing.
            raise StoreError(f"{self.path}: cannot be read or written ({error}).") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._bodies.clear_caches()
            raise

    # --- the collector's side -----------------------------------------------------------------

    def append(
        self, records: Iterable[AnyRecord], position: Position | None = None, malformed: int = 0
    ) -> int:
        with self._transaction() as connection:
            ingest = Ingest(connection, self._bodies, self._read_spill)
            with self._bodies.batch():
                ingest.take(records)
            ingest.write()
            if position is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO journals VALUES (?, ?, ?)",
                    (position.writer, position.generation, position.offset),
                )
                if malformed:
                    _count_malformed(connection, position.writer, malformed)
        return ingest.taken

    def positions(self) -> Mapping[tuple[str, int], int]:
        rows = self._connection.execute("SELECT writer, generation, offset FROM journals")
        return {(writer, generation): offset for writer, generation, offset in rows}

    def forget_position(self, writer: str, generation: int) -> None:
        self._connection.execute(
            "DELETE FROM journals WHERE writer = ? AND generation = ?", (writer, generation)
        )

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        rows = self._connection.execute(
            "SELECT writer, pid, supervisor, first_ns, last_ns, seen, malformed, dropped, ended"
            f" FROM writers {_UNFINISHED if unfinished else ''} ORDER BY id"
        )
        found = []
        for writer, pid, supervisor, first_ns, last_ns, text, malformed, dropped, ended in rows:
            seen = SeenSet.parse(text)
            found.append(
                WriterInfo(
                    writer, pid, supervisor, first_ns, last_ns, seen.last, seen.missing, malformed,
                    dropped, ended,
                )
            )  # fmt: skip
        return found

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        row = self._connection.execute(_SUPERVISED_END, (writer,)).fetchone()
        return SupervisedEnd(_decode(row[0]), row[1]) if row else None

    def open_spans(self, writer: str) -> Sequence[OpenSpan]:
        rows = self._connection.execute(
            "SELECT r.run_id, s.span_id, s.type, s.name, s.seq, s.started_ns"
            " FROM spans s JOIN runs r ON r.id = s.run JOIN writers w ON w.id = s.writer"
            " WHERE w.writer = ? AND s.status IS NULL ORDER BY s.seq",
            (writer,),
        )
        return [OpenSpan(*row) for row in rows]

    def has_seen(self, writer: str, seq: int) -> bool:
        row = self._connection.execute(
            "SELECT seen FROM writers WHERE writer = ?", (writer,)
        ).fetchone()
        return row is not None and seq in SeenSet.parse(row[0])

    def has_run(self, run_id: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row is not None

    def end_writer(self, writer: str, how: str) -> None:
        self._connection.execute("UPDATE writers SET ended = ? WHERE writer = ?", (how, writer))

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> Pruned:
        """A dry run does it all and takes it back, so that its numbers are true."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            pruned = retention.prune(connection, self._bodies, policy, now_ns)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        finally:
            self._bodies.clear_caches()
        connection.execute("ROLLBACK" if dry_run else "COMMIT")
        if not dry_run and (pruned.runs or pruned.bodies):
            # As a script: it steps once for each page, and `execute` would stop after the first.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return pruned

    def pin(self, run_id: str, pinned: bool = True) -> None:
        self._connection.execute(
            "UPDATE runs SET pinned = ? WHERE run_id = ?", (int(pinned), run_id)
        )

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        with self._transaction() as connection:
            search.store_findings(connection, run, results)

    def get_fact(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_fact(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    # --- the query side -------------------------------------------------------------------------

    def list_runs(self, wanted: RunFilter) -> Sequence[RunInfo]:
        where, values = _conditions(wanted)
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs r WHERE {where} ORDER BY r.started_ns DESC, r.id DESC"
            " LIMIT ?",
            (*values, wanted.limit if wanted.limit is not None else -1),
        )
        return [_run_info(row) for row in rows]

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]:
        """Runs with this id, this short id, or an id that begins so."""
        text = id_or_prefix.strip().lower()
        if text.startswith("r") and text[1:].isdecimal():
            where = "r.id = ?"
            values: list[int | str] = [int(text[1:][:18])]
        else:
            # Everything that begins so: up to the text followed by the last character there is.
            where = "r.run_id >= ? AND r.run_id < ?"
            values = [text, text + "\U0010ffff"]
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs r WHERE {where} ORDER BY r.id LIMIT 50", values
        )
        found = [_run_info(row) for row in rows]
        exact = [run for run in found if run.id == text]
        return exact or found

    def run_ids(self) -> Sequence[str]:
        return [row[0] for row in self._connection.execute("SELECT run_id FROM runs")]

    def load_run(self, run_id: str) -> Run:
        row = self._connection.execute(
            f"SELECT {_RUN_COLUMNS}, r.id FROM runs r WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            raise NotFoundError(f"{run_id}: no such run in {self.path}. See `vestige list`.")
        *columns, number = row
        execute = self._connection.execute
        spans = in_order(_span_info(number, row) for row in execute(_SPANS, (number,)))
        logs = in_order(_log_info(row) for row in execute(_LOGS, (number,)))
        links = [
            LinkInfo(span_id=span, target_run=run, target_span=target, reason=reason)
            for span, run, target, reason in execute(
                "SELECT span_id, target_run, target_span, reason FROM links WHERE run = ?"
                " ORDER BY rowid",
                (number,),
            )
        ]
        return Run(info=_run_info(columns), spans=spans, logs=logs, links=links)

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        return self._bodies.read(body_id, start, end)

    def find_spans(self, id_or_prefix: str) -> Sequence[Place]:
        return search.find_spans(self._connection, id_or_prefix)

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[Place]:
        return search.find_attribute(self._connection, value, limit)

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[Place, str | None]]:
        return search.links_to(self._connection, run_id, span_id)

    def search(self, wanted: Wanted, after: str | None = None, limit: int = 100) -> Searched:
        return search.search(self._connection, wanted, after, limit)

    def query(self, sql: str, skip: int, limit: int) -> Rows:
        connection = _connect_to_read(self.path)
        try:
            return ask.query(connection, sql, skip, limit, self.read_body)
        finally:
            connection.close()

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        return search.check_results(self._connection, run_ids)

    def sizes(self) -> dict[str, int]:
        """What is in here, for `doctor`."""
        counts = {
            table: self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("runs", "spans", "logs", "bodies")
        }
        return {
            **counts,
            "file_bytes": self.path.stat().st_size,
            "body_bytes": self._bodies.stored_bytes(),
        }


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None)
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = _connect(uri)
        schema.version(connection)
    except sqlite3.OperationalError:
        # WAL wants to make files beside the store. Where nobody can, nobody writes either.
        if not path.exists() or os.access(path.parent, os.W_OK):
            raise
        connection = _connect(f"{uri}&immutable=1")
    return connection


def _require_version(connection: sqlite3.Connection, path: Path) -> None:
    found = schema.version(connection)
    if found != schema.VERSION:
        older = found < schema.VERSION
        raise StoreError(
            f"{path}: store version {found}, this vestige reads {schema.VERSION}. "
            + ("Run `vestige collect --once` to migrate it." if older else "Upgrade vestige.")
        )


def _count_malformed(connection: sqlite3.Connection, writer: str, count: int) -> None:
    connection.execute(
        "INSERT INTO writers(writer, first_ns, last_ns, seen, malformed) VALUES (?, 0, 0, '[]', ?)"
        " ON CONFLICT (writer) DO UPDATE SET malformed = malformed + excluded.malformed",
        (writer, count),
    )


def _conditions(wanted: RunFilter) -> tuple[str, list[Any]]:
    where = ["1"]
    values: list[Any] = []
    if not wanted.with_implicit:
        where.append(_WORTH_SHOWING)
    if wanted.failed:
        where.append("r.outcome NOT IN ('ok', 'running')")
    if wanted.since_ns is not None:
        where.append("r.started_ns >= ?")
        values.append(wanted.since_ns)
    if wanted.before_ns is not None:
        where.append("r.started_ns < ?")
        values.append(wanted.before_ns)
    if wanted.after is not None:
        where.append("(r.started_ns, r.id) < (SELECT started_ns, id FROM runs WHERE id = ?)")
        values.append(int(wanted.after[1:]))
    if wanted.name is not None:
        where.append("r.name LIKE ? ESCAPE '\\'")
        values.append(_contains(wanted.name))
    if wanted.like is not None:
        where.append(_LIKE)
        values.extend([_contains(wanted.like)] * 4)
    for column in ("name", "outcome"):
        exact = wanted.name_is if column == "name" else wanted.outcome
        if exact is not None:
            where.append(f"r.{column} = ?")
            values.append(exact)
    if wanted.conversation_id is not None:
        where.append("r.conversation_id = ?")
        values.append(wanted.conversation_id)
    return " AND ".join(where), values


def _contains(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


_LIKE = r"""(r.name LIKE ? ESCAPE '\'
  OR EXISTS (SELECT 1 FROM spans s WHERE s.run = r.id
    AND (s.name LIKE ? ESCAPE '\' OR s.attributes LIKE ? ESCAPE '\'))
  OR EXISTS (SELECT 1 FROM logs l WHERE l.run = r.id AND l.message LIKE ? ESCAPE '\'))"""

# An import is no process that could have died: what it leaves open, its source left open.
_UNFINISHED = """
WHERE ended IS NULL
   OR ended <> 'imported' AND id IN (SELECT writer FROM spans WHERE status IS NULL)
"""

_SUPERVISED_END = """
SELECT root.attributes, r.ended_ns FROM writers w
JOIN spans p ON p.span_id = w.process_span
JOIN runs r ON r.id = p.run
JOIN spans root ON root.span_id = r.root_span AND root.run = r.id
WHERE w.writer = ? AND r.ended_ns IS NOT NULL AND root.attributes IS NOT NULL
"""

# A process's own run is shown only when it tells something that no other run tells.
_WORTH_SHOWING = """NOT (r.implicit AND r.own_count = 0 AND (
  r.outcome IN ('ok', 'running')
  OR EXISTS (SELECT 1 FROM runs i WHERE i.process_run = r.run_id AND i.outcome = r.outcome)))"""

_RUN_COLUMNS = (
    "r.run_id, r.id, r.name, r.outcome, r.started_ns, r.ended_ns, r.duration_ns, r.last_ns,"
    " r.span_count, r.log_count, r.error_count, r.conversation_id, r.component, r.input_tokens,"
    " r.output_tokens, r.pinned, r.implicit, r.process_run"
)

_SPANS = """
SELECT s.span_id, s.number, s.parent_id, w.writer, s.seq, s.started_ns, s.type, s.name,
  s.component, s.status, s.duration_ns, s.attributes, s.redacted,
  s.input_body, s.input_bytes, s.input_info, s.output_body, s.output_bytes, s.output_info
FROM spans s JOIN writers w ON w.id = s.writer WHERE s.run = ?
"""
_LOGS = """
SELECT l.span_id, w.writer, l.seq, l.time_ns, l.level, l.component, l.message, l.attributes,
  l.redacted, l.body, l.body_bytes, l.body_info
FROM logs l JOIN writers w ON w.id = l.writer WHERE l.run = ?
"""


def _run_info(row: Sequence[Any]) -> RunInfo:
    return RunInfo(
        id=row[0], short_id=f"r{row[1]}", name=row[2] or "?", outcome=row[3], started_ns=row[4],
        ended_ns=row[5], duration_ns=row[6], last_ns=row[7], span_count=row[8], log_count=row[9],
        error_count=row[10], conversation_id=row[11], component=row[12], input_tokens=row[13],
        output_tokens=row[14], pinned=bool(row[15]), implicit=bool(row[16]), process_run=row[17],
    )  # fmt: skip


def _span_info(run: int, row: Sequence[Any]) -> SpanInfo:
    return SpanInfo(
        id=row[0], short_id=f"r{run}.s{row[1]}", parent_id=row[2], writer=row[3], seq=row[4],
        started_ns=row[5], type=row[6], name=row[7], component=row[8], status=row[9],
        duration_ns=row[10], attributes=_decode(row[11]) if row[11] else {},
        redacted=_decode(row[12]) if row[12] else {},
        input=_body_ref(row[13], row[14], row[15]), output=_body_ref(row[16], row[17], row[18]),
    )  # fmt: skip


def _log_info(row: Sequence[Any]) -> LogInfo:
    return LogInfo(
        span_id=row[0], writer=row[1], seq=row[2], time_ns=row[3], level=row[4], component=row[5],
        message=row[6], attributes=_decode(row[7]) if row[7] else {},
        redacted=_decode(row[8]) if row[8] else {}, body=_body_ref(row[9], row[10], row[11]),
    )  # fmt: skip


def _body_ref(body_id: int | None, size_bytes: int | None, info: str | None) -> BodyRef | None:
    if size_bytes is None:
        return None
    if info is None:
        return BodyRef(body_id, size_bytes)
    known = _decode(info)
    return BodyRef(
        body_id, size_bytes, known.get("lost") or f"cut from {known['original_bytes']} bytes"
    )
