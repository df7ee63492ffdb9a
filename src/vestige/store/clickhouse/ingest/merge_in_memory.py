"""A small SQLite database in memory in which a transaction merges records into rows.

    staging = Staging(client, view, read_spill)
    staging.load_for_records(records)            # the rows that these records may change
    staging.writer.append(records, tenant=...)   # the merging code of the SQLite engine
    staging.changes()                            # the rows that are new or different now

Merging records is subtle: records come twice and in any order, calls are nested, crash stamps are
withdrawn. It exists once, in store/sqlite/ingest, and both engines run it. Here its tables contain
the few rows that a batch may change, which are loaded first, and ids continue those of the store.

Elsewhere: which rows are loaded, staging_rows.py; their way back, row_export.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.interface.ingest import ReadSpill
from vestige.store.sqlite import schema as sqlite_schema
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest.batch_ingest import Ingest
from vestige.store.sqlite.ingest.daily_rollups import Rollups, format_day
from vestige.store.sqlite.writer import SqliteWriter

PREVIEW_CHARACTERS: Final = 80
IDS_PER_QUERY: Final = 1_000
"""Values of one query, because parameters are part of its URL."""
HASHES_PER_QUERY: Final = 50_000
"""Each query reads most of the hashes of a store, however few it looks for."""

_TABLES = """
CREATE TABLE changed (kind TEXT, id INTEGER, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE deleted_logs AS SELECT * FROM logs;
CREATE TABLE new_bodies (
  id INTEGER PRIMARY KEY, tenant TEXT, hash BLOB, size_bytes INTEGER, first_ns INTEGER, data BLOB);
CREATE TABLE rollup_changes (
  tenant TEXT, day TEXT, component TEXT, type TEXT, name TEXT, model TEXT, count INTEGER,
  errors INTEGER, duration_ns INTEGER, histogram TEXT, input_tokens INTEGER, output_tokens INTEGER,
  cache_read_tokens INTEGER, cache_write_tokens INTEGER);
CREATE TRIGGER log_deleted BEFORE DELETE ON logs
BEGIN INSERT INTO deleted_logs SELECT * FROM logs WHERE id = OLD.id; END;
CREATE TRIGGER run_records_added AFTER UPDATE OF last_ns ON runs
BEGIN INSERT INTO changed SELECT 'records', NEW.id
  WHERE NOT EXISTS (SELECT 1 FROM changed WHERE kind = 'records' AND id = NEW.id); END;
"""
_TRACKED: Final = ("runs", "writers", "spans", "logs")
_TRIGGERS = "".join(
    f"CREATE TRIGGER {table}_{event.lower()}_tracked AFTER {event} ON {table}\n"
    # A statement with its own rule for conflicts would replace that of INSERT OR IGNORE.
    f"BEGIN INSERT INTO changed SELECT '{table}', NEW.id WHERE NOT EXISTS"
    f" (SELECT 1 FROM changed WHERE kind = '{table}' AND id = NEW.id); END;\n"
    for table in _TRACKED
    for event in ("INSERT", "UPDATE")
)


@cache
def _template() -> bytes:
    """Return an empty database. Copying it is faster than to create its tables."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite_schema.migrate(connection, ":memory:")
    connection.executescript(_TABLES + _TRIGGERS)
    data: bytes = connection.serialize()
    connection.close()
    return data


def open_memory() -> sqlite3.Connection:
    """Return an empty database in memory with the tables of the SQLite engine."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(_template())
    return connection


class Staging:
    """The rows of one transaction."""

    def __init__(
        self, client: Client, view: View, week: str, read_spill: ReadSpill, home_id: str
    ) -> None:
        self.client = client
        self.view = view
        self.week = week
        """The Monday of this week, as YYYY-MM-DD."""
        self.home_id = home_id
        self.connection = open_memory()
        self._set_counters()
        self.bodies = BodyBuffer(self)
        self.writer = StagedWriter(self.connection, self.bodies, read_spill)
        self.runs: dict[int, tuple[int, Any]] = {}
        """For each loaded run: the commit that last added records, and its first week."""
        self.previews: dict[int, tuple[str, str]] = {}
        """The previews of loaded spans, by row id."""
        self.base = view.base
        """The number of the rollups to which those of this transaction belong."""
        self.extra: dict[str, list[Sequence[Any]]] = {}
        """Rows that need no merging, by table."""
        self.known: dict[str, set[Any]] = {}
        """Keys that were looked up, by kind."""

    def _set_counters(self) -> None:
        counters = self.view.counters
        execute = self.connection.execute
        for table in ("runs", "closes"):
            execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, counters[table]))
        for table in ("spans", "logs"):
            execute("INSERT INTO facts VALUES (?, ?)", (f"{table}_top", str(counters[table])))
        # SQLite numbers new rows of the other tables after the highest existing one.
        if counters["writers"]:
            execute(
                "INSERT INTO writers(id, writer, first_ns, last_ns, seen) VALUES (?, '', 0, 0, '')",
                (counters["writers"],),
            )
        if counters["links"]:
            execute(
                "INSERT INTO links(rowid, run, span_id, target_span) VALUES (?, -1, '', '')",
                (counters["links"],),
            )
        execute("DELETE FROM changed")

    def counters(self) -> dict[str, int]:
        """Return the highest id of each kind of row, including those of this transaction."""
        found = {}
        for name, sql in _HIGHEST.items():
            (highest,) = self.connection.execute(sql).fetchone()
            found[name] = max(highest or 0, self.view.counters[name])
        return found

    def query(self, sql: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        """Query the store in the state on which this transaction builds."""
        return self.client.query(sql, **self.view.parameters(), **parameters)

    def find_new(self, kind: str, keys: Iterable[Any]) -> list[Any]:
        """Return those keys that were not looked up before, and remember them."""
        known = self.known.setdefault(kind, set())
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known.update(new)
        return new

    def forget_loaded(self) -> None:
        """Forget which rows were loaded, so that they are looked up again."""
        self.known.clear()

    def close(self) -> None:
        self.connection.close()


_HIGHEST: Final[Mapping[str, str]] = {
    "runs": "SELECT seq FROM sqlite_sequence WHERE name = 'runs'",
    "closes": "SELECT seq FROM sqlite_sequence WHERE name = 'closes'",
    "writers": "SELECT max(id) FROM writers",
    "spans": "SELECT max(id) FROM spans",
    "logs": "SELECT max(m) FROM"
    " (SELECT max(id) m FROM logs UNION SELECT max(id) FROM deleted_logs)",
    "links": "SELECT max(rowid) FROM links",
    "bodies": "SELECT max(id) FROM new_bodies",
}


class BodyBuffer(Bodies):
    """The new bodies of a transaction. Equal texts of a tenant and week have one id."""

    def __init__(self, staging: Staging) -> None:
        super().__init__(staging.connection)
        self._staging = staging
        self._ids: dict[tuple[str, bytes], int] = {}
        self.previews: dict[int, str] = {}

    def clear_caches(self) -> None:
        """Forget ids that were assigned, because a part of the transaction was undone."""
        self._ids = {}

    def put_many(self, bodies: Sequence[tuple[bytes, int]], tenant: int = 0) -> list[int]:
        """Return the ids of bodies, of which the new ones wait for the commit."""
        connection = self._staging.connection
        query = "SELECT name FROM tenants WHERE id = ?"
        (name,) = connection.execute(query, (tenant,)).fetchone()
        digests = [sha256(data).digest()[:16] for data, _ in bodies]
        self._find_ids(name, digests)
        (highest,) = connection.execute(_HIGHEST["bodies"]).fetchone()
        next_id = max(highest or 0, self._staging.view.counters["bodies"]) + 1
        ids, new = [], []
        for (data, at_ns), digest in zip(bodies, digests, strict=True):
            body_id = self._ids.get((name, digest))
            if body_id is None:
                body_id = self._ids[name, digest] = next_id
                next_id += 1
                new.append((body_id, name, digest, len(data), at_ns, data))
            if body_id not in self.previews:
                # At most 4 bytes are one character.
                start = data[: PREVIEW_CHARACTERS * 4].decode(errors="replace")
                self.previews[body_id] = start[:PREVIEW_CHARACTERS]
            ids.append(body_id)
        connection.executemany("INSERT INTO new_bodies VALUES (?, ?, ?, ?, ?, ?)", new)
        return ids

    def _find_ids(self, tenant: str, digests: Iterable[bytes]) -> None:
        missing = [each for each in dict.fromkeys(digests) if (tenant, each) not in self._ids]
        if not missing:
            return
        staging = self._staging
        # Bodies of this transaction, if the cache was cleared.
        for body_id, digest in staging.connection.execute(
            "SELECT id, hash FROM new_bodies WHERE tenant = ?", (tenant,)
        ):
            self._ids[tenant, digest] = body_id
        if not staging.view.counters["bodies"]:
            return
        for at in range(0, len(missing), HASHES_PER_QUERY):
            # A part of the text of the query, which consists of hexadecimal digits only: a
            # parameter would be a part of its URL.
            hashes = "".join(digest.hex() for digest in missing[at : at + HASHES_PER_QUERY])
            rows = staging.query(
                _FIND_BODIES.format(staging.view.visible("body_keys"), hashes),
                owner=tenant,
                week=staging.week,
            )
            for text, body_id in rows:
                self._ids.setdefault((tenant, bytes.fromhex(text)), body_id)


_FIND_BODIES = """
SELECT hex(k.hash), k.id FROM (
  SELECT * FROM body_keys WHERE {} AND tenant = {{owner:String}} AND week = {{week:Date}}
    AND hash IN (SELECT toFixedString(unhex(arrayJoin(extractAll('{}', '.{{32}}'))), 16))
  ORDER BY hash, commit DESC LIMIT 1 BY hash
) k WHERE k.deleted = 0
"""


class RollupChanges(Rollups):
    """The sums of one batch, which are stored as changes and added up when they are read."""

    def write(self, connection: sqlite3.Connection) -> None:
        rows = []
        for (day, component, kind, name, model), sums in self._sums.items():
            histogram = {bucket: times for bucket, times in sums.histogram().items() if times}
            row = (
                sums.count(),
                sums.errors,
                sums.duration_ns(),
                msgspec.json.encode(histogram).decode(),
                *sums.tokens(),
            )
            if any(row[:3]) or any(row[4:]):
                rows.append((self._tenant, format_day(day), component, kind, name, model, *row))
        marks = ", ".join("?" * 14)
        connection.executemany(f"INSERT INTO rollup_changes VALUES ({marks})", rows)
        self._sums.clear()


class StagedWriter(SqliteWriter):
    """The writing half of the SQLite engine, over the rows of one transaction."""

    def __init__(
        self, connection: sqlite3.Connection, bodies: BodyBuffer, read_spill: ReadSpill
    ) -> None:
        super().__init__(connection, Path("store"), read_spill)
        self._bodies = bodies

    def _make_ingest(self, tenant: str) -> Ingest:
        return Ingest(
            self._connection, self._bodies, self._read_spill, tenant, RollupChanges(tenant)
        )
