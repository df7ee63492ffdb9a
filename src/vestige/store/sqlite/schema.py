"""The tables of the store, and the migrations from every older version.

SQLite stores the comments inside the SQL, so they also document the file for its users.
The statements of a released step never change; a change of the schema is a new step.
"""

from __future__ import annotations

import re
import sqlite3

from vestige.errors import StoreError
from vestige.limits import CLOSES_STORED_MAX
from vestige.store.interface.search import StoreSchema, TableInfo
from vestige.store.sqlite.bodies import body_store, packed_bodies
from vestige.store.sqlite.ingest import (
    external_spans,
    join_call_bodies,
    remote_writers,
    withdraw_crash_stamps,
)

_RUNS = """
CREATE TABLE writers (            -- one process's journal
  id          INTEGER PRIMARY KEY,
  writer      TEXT NOT NULL UNIQUE, -- 16 hex digits
  pid         INTEGER,
  supervisor  TEXT,               -- the writer of the `vestige run` that started it, if any
  process_span TEXT,
  first_ns    INTEGER NOT NULL,
  last_ns     INTEGER NOT NULL,
  seen        TEXT NOT NULL,      -- JSON: stored ranges of seq, [[1,120],[122,130]]
  malformed   INTEGER NOT NULL DEFAULT 0, -- journal lines that are not valid records
  dropped     INTEGER NOT NULL DEFAULT 0, -- records that the writer dropped, as it reported
  ended       TEXT                -- NULL: may be running; 'exited' or 'interrupted'
);
CREATE TABLE journals (           -- the offset up to which each journal file has been stored
  writer      TEXT NOT NULL,
  generation  INTEGER NOT NULL,
  offset      INTEGER NOT NULL,
  PRIMARY KEY (writer, generation)
) WITHOUT ROWID;
CREATE TABLE runs (
  id              INTEGER PRIMARY KEY AUTOINCREMENT, -- short id: r<id>
  run_id          TEXT NOT NULL UNIQUE,
  name            TEXT,
  component       TEXT,
  conversation_id TEXT,
  tenant          TEXT NOT NULL DEFAULT 'default',
  started_ns      INTEGER NOT NULL,
  last_ns         INTEGER NOT NULL,  -- the newest record
  ended_ns        INTEGER,
  duration_ns     INTEGER,
  outcome         TEXT NOT NULL DEFAULT 'running', -- running ok error cancelled timeout interrupted
  root_span       TEXT,
  span_count      INTEGER NOT NULL DEFAULT 0,
  log_count       INTEGER NOT NULL DEFAULT 0,
  error_count     INTEGER NOT NULL DEFAULT 0,  -- failed spans and error logs
  own_count       INTEGER NOT NULL DEFAULT 0,  -- spans and logs of the program, not of the recorder
  input_tokens    INTEGER NOT NULL DEFAULT 0,
  output_tokens   INTEGER NOT NULL DEFAULT 0,
  implicit        INTEGER NOT NULL DEFAULT 0,  -- 1: opened for a process, not by the program
  process_run     TEXT,                        -- run_id of its process
  pinned          INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_started ON runs(started_ns);
CREATE INDEX runs_conversation ON runs(conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX runs_process ON runs(process_run) WHERE process_run IS NOT NULL;
CREATE TABLE spans (
  id           INTEGER PRIMARY KEY,
  run          INTEGER NOT NULL,   -- runs.id
  number       INTEGER NOT NULL,   -- short id: r<run>.s<number>
  span_id      TEXT NOT NULL,      -- 16 hex digits
  parent_id    TEXT,
  writer       INTEGER NOT NULL,   -- writers.id
  seq          INTEGER,            -- of its span-open; NULL: the span-open is missing
  started_ns   INTEGER NOT NULL,
  type         TEXT NOT NULL,      -- run step llm tool state process ...
  name         TEXT NOT NULL,
  component    TEXT NOT NULL,
  status       TEXT,               -- NULL: open. ok error cancelled timeout interrupted
  duration_ns  INTEGER,
  end_seq      INTEGER,
  attributes   TEXT,               -- flat JSON object
  redacted     TEXT,               -- JSON: how often each redaction rule acted
  input_body   INTEGER,            -- bodies.id
  input_bytes  INTEGER,
  input_info   TEXT,               -- JSON: set when the body was cut or lost
  output_body  INTEGER,
  output_bytes INTEGER,
  output_info  TEXT
);
CREATE INDEX spans_run ON spans(run);
CREATE UNIQUE INDEX spans_id ON spans(span_id, run);
CREATE INDEX spans_open ON spans(writer) WHERE status IS NULL;
CREATE TABLE logs (
  id          INTEGER PRIMARY KEY,
  run         INTEGER NOT NULL,
  span_id     TEXT,
  writer      INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  time_ns     INTEGER NOT NULL,
  level       TEXT NOT NULL,
  component   TEXT NOT NULL,
  message     TEXT NOT NULL,
  attributes  TEXT,
  redacted    TEXT,
  body        INTEGER,
  body_bytes  INTEGER,
  body_info   TEXT
);
CREATE INDEX logs_run ON logs(run);
CREATE TABLE links (              -- causal edges
  run         INTEGER NOT NULL,
  span_id     TEXT NOT NULL,
  target_run  TEXT,               -- run_id; NULL: the same run
  target_span TEXT NOT NULL,
  reason      TEXT
);
CREATE INDEX links_run ON links(run);
CREATE INDEX links_target ON links(target_span);
CREATE TABLE unknown (            -- unchanged records of kinds that this version does not know
  writer      TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  run_id      TEXT,
  line        BLOB NOT NULL,
  PRIMARY KEY (writer, seq)
) WITHOUT ROWID;
CREATE TABLE rollups (            -- daily sums that outlive the spans they were made of
  day         TEXT NOT NULL,      -- UTC, YYYY-MM-DD
  component   TEXT NOT NULL,
  type        TEXT NOT NULL,
  name        TEXT NOT NULL,
  model       TEXT NOT NULL,      -- '' where there is none
  count       INTEGER NOT NULL,
  errors      INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,   -- sum
  histogram   TEXT NOT NULL,      -- JSON {bucket: count}, see store/sqlite/ingest/daily_rollups.py
  input_tokens       INTEGER NOT NULL,
  output_tokens      INTEGER NOT NULL,
  cache_read_tokens  INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  PRIMARY KEY (day, component, type, name, model)
) WITHOUT ROWID;
CREATE TABLE facts (              -- single values: when the collector last ran, last pruned
  key         TEXT PRIMARY KEY,
  value       TEXT NOT NULL
) WITHOUT ROWID;
"""

_FINDINGS = """
CREATE TABLE findings (           -- cached results of the checks of finished runs
  run           INTEGER NOT NULL, -- runs.id
  check_name    TEXT NOT NULL,
  check_version INTEGER NOT NULL, -- a result of an older version is computed again
  finding       TEXT              -- JSON; NULL: the check passed
);
CREATE INDEX findings_run ON findings(run);
-- The findings of a run are deleted when the run changes or is deleted.
CREATE TRIGGER findings_stale AFTER UPDATE OF last_ns, span_count, log_count, outcome ON runs
WHEN OLD.last_ns IS NOT NEW.last_ns OR OLD.span_count IS NOT NEW.span_count
  OR OLD.log_count IS NOT NEW.log_count OR OLD.outcome IS NOT NEW.outcome
BEGIN DELETE FROM findings WHERE run = OLD.id; END;
CREATE TRIGGER findings_gone AFTER DELETE ON runs
BEGIN DELETE FROM findings WHERE run = OLD.id; END;
"""

_BUNDLES = """
CREATE VIEW snapshots AS          -- states of sessions, oldest first within a run
SELECT
  run,                            -- runs.id
  number,                         -- short id: r<run>.s<number>
  json_extract(attributes, '$.index') AS "index", -- its position in the run, from 0: r<run>#<index>
  json_extract(attributes, '$.session_id') AS session_id,
  json_extract(attributes, '$.created_at') AS created_at,
  status,                         -- error: not a valid snapshot
  output_bytes AS size_bytes,
  output_body AS body,            -- bodies.id; body_text(body) is its JSON
  started_ns
FROM spans WHERE type = 'snapshot';
CREATE VIEW slices AS             -- typed parts of snapshots; only `vestige sql` can read them
SELECT
  s.run,
  s."index" AS snapshot,          -- snapshots.index
  s.session_id,
  json_extract(e.value, '$.slice_type') AS slice_type,
  json_extract(e.value, '$.item_type') AS item_type,
  json_array_length(e.value, '$.items') AS item_count,
  json_extract(e.value, '$.items') AS items -- JSON list
FROM snapshots s, json_each(body_json(s.body), '$.slices') e;
CREATE VIEW files AS              -- captured files
SELECT
  run,
  number,
  json_extract(attributes, '$.path') AS path,
  json_extract(attributes, '$.size_bytes') AS size_bytes,
  json_extract(attributes, '$.sha256') AS sha256,
  output_body AS body,            -- bodies.id; body_text(body) is its text
  started_ns
FROM spans WHERE type = 'file';
"""

_TENANTS = """
CREATE TABLE tenants (            -- the owners of runs; runs.tenant has the name
  id          INTEGER PRIMARY KEY, -- 0: 'default', what was recorded on this machine
  name        TEXT NOT NULL UNIQUE
);
INSERT INTO tenants VALUES (0, 'default');
-- The default tenant is left out, so a store without tenants has an empty index.
CREATE INDEX runs_tenant ON runs(tenant, started_ns) WHERE tenant <> 'default';
ALTER TABLE writers ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
ALTER TABLE bodies ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0; -- tenants.id
ALTER TABLE rollups RENAME TO rollups_before;
CREATE TABLE rollups (            -- daily sums that outlive the spans they were made of
  day         TEXT NOT NULL,      -- UTC, YYYY-MM-DD
  tenant      TEXT NOT NULL,
  component   TEXT NOT NULL,
  type        TEXT NOT NULL,
  name        TEXT NOT NULL,
  model       TEXT NOT NULL,      -- '' where there is none
  count       INTEGER NOT NULL,
  errors      INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,   -- sum
  histogram   TEXT NOT NULL,      -- JSON {bucket: count}, see store/sqlite/ingest/daily_rollups.py
  input_tokens       INTEGER NOT NULL,
  output_tokens      INTEGER NOT NULL,
  cache_read_tokens  INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  PRIMARY KEY (day, tenant, component, type, name, model)
) WITHOUT ROWID;
INSERT INTO rollups SELECT day, 'default', component, type, name, model, count, errors, duration_ns,
  histogram, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens FROM rollups_before;
DROP TABLE rollups_before;
"""

_NOTES = """
CREATE TABLE notes (              -- notes that people and programs add to a run
  run         INTEGER NOT NULL,   -- runs.id
  id          TEXT NOT NULL,      -- a UUIDv4, or the id in its source
  span_id     TEXT,               -- NULL: a note on the run itself
  event_id    TEXT,               -- for formats that number their events
  author      TEXT,
  created_ns  INTEGER NOT NULL,
  text        TEXT NOT NULL,
  PRIMARY KEY (run, id)
) WITHOUT ROWID;
CREATE TRIGGER notes_gone AFTER DELETE ON runs
BEGIN DELETE FROM notes WHERE run = OLD.id; END;
"""

_CLOSES = f"""
CREATE TABLE closes (             -- spans that ended after their row was written, in that order
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  span        INTEGER NOT NULL    -- spans.id
);
-- The change feed finds new rows by spans.id, and ends of older spans by closes.id.
CREATE TRIGGER span_closed AFTER UPDATE OF status ON spans
WHEN OLD.status IS NULL AND NEW.status IS NOT NULL
BEGIN INSERT INTO closes(span) VALUES (NEW.id); END;
CREATE TRIGGER closes_old AFTER INSERT ON closes WHEN NEW.id % 1000 = 0
BEGIN DELETE FROM closes WHERE id <= NEW.id - {CLOSES_STORED_MAX}; END;
"""

_IMPORTED = """
ALTER TABLE runs ADD COLUMN imported_ns INTEGER; -- time of its import, NULL if it was recorded here
"""

_MISSING = """
ALTER TABLE runs ADD COLUMN missing_count INTEGER NOT NULL DEFAULT 0; -- dropped records
CREATE INDEX runs_rootless ON runs(id) WHERE root_span IS NULL AND outcome = 'running';
"""

_SPANS_BY_RUN = """
-- Span ids are random: an index that begins with them has its new entries on as many pages as there
-- are new spans. In the order of runs they are next to each other.
DROP INDEX spans_id;
CREATE UNIQUE INDEX spans_id ON spans(run, span_id);
CREATE INDEX IF NOT EXISTS spans_process ON spans(span_id) WHERE type = 'process';
"""

STEPS: tuple[str, ...] = (
    _RUNS + body_store.TABLES,
    _FINDINGS,
    _BUNDLES,
    _TENANTS,
    _NOTES,
    _CLOSES,
    remote_writers.TABLES,
    body_store.ROWS,
    _IMPORTED,
    remote_writers.HEARD,
    external_spans.INDEXES,
    packed_bodies.TABLES,
    withdraw_crash_stamps.INDEXES,
    _MISSING,
    external_spans.MODEL_CALLS,
    _SPANS_BY_RUN,
    join_call_bodies.INDEXES,
)
"""Step n migrates a store from version n to n + 1."""

VERSION = len(STEPS)


def view_columns(name: str) -> list[str]:
    """Return the columns of a view, from its SQL. SQLite would have to run the view for that."""
    found = re.search(rf"(?ms)^CREATE VIEW {re.escape(name)} AS.*?^FROM", "\n".join(STEPS))
    lines = found.group().splitlines()[2:-1] if found else []
    columns = (re.sub(r"--.*", "", line).strip().rstrip(",") for line in lines)
    return [column.rpartition(" ")[2].rpartition(".")[2].strip('"') for column in columns if column]


def views() -> list[tuple[str, str]]:
    """Return the name and SQL of each view. A view may depend on earlier ones."""
    found = re.finditer(r"(?ms)^CREATE VIEW (\w+) AS.*?;$", "\n".join(STEPS))
    return [(match[1], match[0]) for match in found]


def tables() -> list[tuple[str, str]]:
    """Return the name and SQL of each table, with the columns that later steps added."""
    text = "\n".join(STEPS)
    found = {
        match[1]: match[0]
        for match in re.finditer(r"(?ms)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) .*?^\)[^;]*;", text)
    }
    for match in re.finditer(r"(?m)^ALTER TABLE (\w+) ADD COLUMN (.*);(.*)$", text):
        head, end, rest = found[match[1]].rpartition("\n)")
        found[match[1]] = f"{head}\n  {match[2]}{match[3]} (added later){end}{rest}"
    return list(found.items())


def describe() -> StoreSchema:
    """Return the tables and views, those that users need most first."""
    found = sorted(tables(), key=lambda table: _FIRST.get(table[0], len(_FIRST)))
    described = [TableInfo(name, sql, _find_columns(sql), False) for name, sql in found]
    described += [TableInfo(name, sql, view_columns(name), True) for name, sql in views()]
    return StoreSchema(VERSION, described, EXAMPLES)


_FIRST = {
    name: at
    for at, name in enumerate(("runs", "spans", "logs", "links", "findings", "notes", "rollups"))
}

EXAMPLES = (
    "SELECT name, count(*) n, avg(duration_ns) / 1e6 ms FROM spans"
    " WHERE type = 'tool' GROUP BY name ORDER BY n DESC",
    "SELECT 'r' || run || '.s' || number id, name, status FROM spans"
    " WHERE status = 'error' ORDER BY id DESC LIMIT 20",
    "SELECT json_extract(attributes, '$.model') model,"
    " sum(json_extract(attributes, '$.input_tokens')) tokens"
    " FROM spans WHERE type = 'llm' GROUP BY 1",
    "SELECT snapshot, slice_type, item_count FROM slices WHERE run = 7 ORDER BY snapshot",
    "SELECT r.name, f.check_name, count(*) n FROM findings f JOIN runs r ON r.id = f.run"
    " WHERE f.finding IS NOT NULL GROUP BY 1, 2",
)


def _find_columns(sql: str) -> list[str]:
    return re.findall(r"(?m)^ +(\w+) +(?:INTEGER|TEXT|BLOB|REAL)", sql)


def version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def migrate(connection: sqlite3.Connection, path: object) -> None:
    """Migrate a store to this version, each step in a transaction of its own.

    Several processes may migrate at once. Steps that another process has made are skipped.
    """
    found = version(connection)
    if found > VERSION:
        raise StoreError(
            f"{path}: store version {found} is newer than this vestige (expected {VERSION}). "
            "Upgrade vestige."
        )
    for number in range(found, VERSION):
        if version(connection) > number:
            continue
        try:
            # executescript commits an open transaction, so the script contains its own.
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{STEPS[number]}\nPRAGMA user_version = {number + 1};\nCOMMIT;"
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if version(connection) <= number:
                raise
