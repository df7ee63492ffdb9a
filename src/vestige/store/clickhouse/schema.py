"""The tables of a store in ClickHouse, and the statements that make and upgrade them.

Rows are only ever added. A row that changes is added again with the number of its commit, and a
reader takes the newest version up to the commit that it reads (read_snapshot.py). Each table has:

  tenant    the owner, and the first column of the key
  commit    the commit that added this version
  attempt   the process and try that added it; rows of a try that failed are never read
  deleted   1: the row was deleted by this version
  week      the Monday of the week in which the row arrived; partitions are dropped by it

The statements of a released step never change; a change of the schema is a new step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from vestige.errors import StoreError, UsageError
from vestige.store.clickhouse.client import ClickHouseError, Client
from vestige.store.interface.search import StoreSchema, TableInfo

_VERSION_COLUMNS = """
  commit UInt64 CODEC(Delta, ZSTD(1)),
  attempt UInt64 CODEC(ZSTD(1)),
  deleted UInt8"""

_FIRST_STEP = """
CREATE TABLE commits (            -- one row for each commit; the newest one is the state to read
  number      UInt64,
  attempt     UInt64,             -- the attempt that made this commit
  at          DateTime64(3),
  runs        Int64,              -- the highest id of each kind of row
  writers     Int64,
  spans       Int64,
  logs        Int64,
  links       Int64,
  closes      Int64,
  bodies      Int64,
  base        UInt32,             -- the rollups to read (ingest/rollup_compaction.py)
  dead        Array(UInt64)       -- attempts that failed; their rows are never read
) ENGINE = MergeTree ORDER BY number SETTINGS non_replicated_deduplication_window = 10000;
CREATE TABLE attempts (           -- one row for each try to make a commit, before its rows
  number      UInt64,
  attempt     UInt64,
  at          DateTime64(3)
) ENGINE = MergeTree ORDER BY number;
CREATE TABLE runs (
  tenant      LowCardinality(String),
  id          Int64,              -- short id: r<id>
  run_id      String,
  name        Nullable(String),
  component   Nullable(String),
  conversation_id Nullable(String),
  started_ns  Int64,
  last_ns     Int64,              -- the newest record
  ended_ns    Nullable(Int64),
  duration_ns Nullable(Int64),
  outcome     LowCardinality(String), -- running ok error cancelled timeout interrupted
  root_span   Nullable(String),
  span_count  Int64,
  log_count   Int64,
  error_count Int64,              -- failed spans and error logs
  own_count   Int64,              -- spans and logs of the program, not of the recorder
  input_tokens  Int64,
  output_tokens Int64,
  implicit    Int64,              -- 1: opened for a process, not by the program
  process_run Nullable(String),   -- run_id of its process
  pinned      Int64,
  imported_ns Nullable(Int64),    -- time of its import; NULL if it was recorded
  missing_count Int64,            -- dropped records
  changed     UInt64,             -- the last commit that added records to it
  first_week  Date,               -- the week in which its first record arrived
  week        Date,{version},
  INDEX by_run_id run_id TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX by_start started_ns TYPE minmax GRANULARITY 1,
  INDEX by_process process_run TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree ORDER BY (tenant, id, commit) SETTINGS index_granularity = 1024;
CREATE TABLE writers (            -- one process's journal
  tenant      LowCardinality(String),
  id          Int64,
  writer      String,             -- 16 hex digits
  pid         Nullable(Int64),
  supervisor  Nullable(String),   -- the writer of the `vestige run` that started it, if any
  process_span Nullable(String),
  first_ns    Int64,
  last_ns     Int64,
  seen        String,             -- JSON: stored ranges of seq, [[1,120],[122,130]]
  malformed   Int64,              -- journal lines that are not valid records
  dropped     Int64,              -- records that the writer dropped, as it reported
  ended       Nullable(String),   -- NULL: may be running; 'exited' or 'interrupted'{version},
  INDEX by_writer writer TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree ORDER BY (tenant, id, commit) SETTINGS index_granularity = 1024;
CREATE TABLE journals (           -- the offset up to which each journal file has been stored
  writer      String,
  generation  Int64,
  offset      Int64,{version}
) ENGINE = MergeTree ORDER BY (writer, generation, commit);
CREATE TABLE remote_writers (     -- processes of other machines, whose records were sent here
  writer      String,
  over        Int64,              -- 1: its machine reported its end, and sent everything
  fault       Nullable(String),   -- what faulthandler wrote there while it died
  heard_ns    Nullable(Int64),    -- when records of it last arrived{version}
) ENGINE = MergeTree ORDER BY (writer, commit);
CREATE TABLE spans (
  tenant      LowCardinality(String),
  run         Int64 CODEC(Delta, ZSTD(1)), -- runs.id
  id          Int64 CODEC(Delta, ZSTD(1)),
  number      Int64 CODEC(Delta, ZSTD(1)), -- short id: r<run>.s<number>
  span_id     String CODEC(ZSTD(1)), -- 16 hex digits
  parent_id   Nullable(String) CODEC(ZSTD(1)),
  writer      Int64 CODEC(Delta, ZSTD(1)), -- writers.id
  seq         Nullable(Int64) CODEC(ZSTD(1)), -- of its span-open; NULL: the span-open is missing
  started_ns  Int64 CODEC(Delta, ZSTD(1)),
  type        LowCardinality(String), -- run step llm tool state process ...
  name        String CODEC(ZSTD(1)),
  component   LowCardinality(String),
  status      LowCardinality(Nullable(String)), -- NULL: open. ok error cancelled timeout ...
  duration_ns Nullable(Int64) CODEC(ZSTD(1)),
  end_seq     Nullable(Int64) CODEC(ZSTD(1)),
  attributes  Nullable(String) CODEC(ZSTD(3)), -- flat JSON object
  redacted    Nullable(String) CODEC(ZSTD(1)), -- JSON: how often each redaction rule acted
  input_body  Nullable(Int64) CODEC(ZSTD(1)), -- bodies.id
  input_bytes Nullable(Int64) CODEC(ZSTD(1)),
  input_info  Nullable(String),   -- JSON: set when the body was cut or lost
  input_preview String CODEC(ZSTD(1)), -- the first 80 characters
  output_body  Nullable(Int64) CODEC(ZSTD(1)),
  output_bytes Nullable(Int64) CODEC(ZSTD(1)),
  output_info  Nullable(String),
  output_preview String CODEC(ZSTD(1)),
  week        Date,{version},
  INDEX by_id id TYPE minmax GRANULARITY 1,
  INDEX by_span_id span_id TYPE bloom_filter(0.001) GRANULARITY 4,
  INDEX by_writer writer TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = MergeTree PARTITION BY week ORDER BY (tenant, run, id, commit);
CREATE TABLE logs (
  tenant      LowCardinality(String),
  run         Int64 CODEC(Delta, ZSTD(1)),
  id          Int64 CODEC(Delta, ZSTD(1)),
  span_id     Nullable(String) CODEC(ZSTD(1)),
  writer      Int64 CODEC(Delta, ZSTD(1)),
  seq         Int64 CODEC(Delta, ZSTD(1)),
  time_ns     Int64 CODEC(Delta, ZSTD(1)),
  level       LowCardinality(String),
  component   LowCardinality(String),
  message     String CODEC(ZSTD(3)),
  attributes  Nullable(String) CODEC(ZSTD(3)),
  redacted    Nullable(String) CODEC(ZSTD(1)),
  body        Nullable(Int64) CODEC(ZSTD(1)),
  body_bytes  Nullable(Int64) CODEC(ZSTD(1)),
  body_info   Nullable(String),
  week        Date,{version},
  INDEX by_id id TYPE minmax GRANULARITY 1,
  INDEX by_writer writer TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = MergeTree PARTITION BY week ORDER BY (tenant, run, id, commit);
CREATE TABLE links (              -- causal edges
  tenant      LowCardinality(String),
  run         Int64,
  id          Int64,
  span_id     String,
  target_run  Nullable(String),   -- run_id; NULL: the same run
  target_span String,
  reason      Nullable(String),
  week        Date,{version},
  INDEX by_target target_span TYPE bloom_filter(0.001) GRANULARITY 4
) ENGINE = MergeTree PARTITION BY week ORDER BY (tenant, run, id, commit);
CREATE TABLE closes (             -- spans that ended after their row was written, in that order
  id          Int64,
  span        Int64,              -- spans.id
  run         Int64,
  tenant      LowCardinality(String),
  week        Date,{version}
) ENGINE = MergeTree PARTITION BY week ORDER BY id;
CREATE TABLE unknown (            -- unchanged records of kinds that this version does not know
  tenant      LowCardinality(String),
  writer      String,
  seq         Int64,
  run_id      Nullable(String),
  line        String,{version}
) ENGINE = MergeTree ORDER BY (tenant, writer, seq);
CREATE TABLE bodies (             -- texts that records refer to, each once in a week
  tenant      LowCardinality(String),
  id          Int64 CODEC(Delta, ZSTD(1)),
  size_bytes  Int64 CODEC(ZSTD(1)),
  first_ns    Int64 CODEC(Delta, ZSTD(1)), -- time of the first record that refers to it
  evicted_ns  Nullable(Int64),    -- when retention removed the text; NULL while it is stored
  data        String CODEC(ZSTD(6)),
  week        Date,{version},
  INDEX words lower(data)
    TYPE text(tokenizer = 'splitByNonAlpha', posting_list_codec = 'bitpacking')
) ENGINE = MergeTree PARTITION BY week ORDER BY (tenant, id, commit)
SETTINGS index_granularity = 512, min_compress_block_size = 4194304,
  max_compress_block_size = 4194304;
CREATE TABLE body_keys (          -- the id of each text, by its hash
  tenant      LowCardinality(String),
  hash        FixedString(16),    -- the first bytes of the SHA-256 of the text
  id          Int64,
  week        Date,{version}
) ENGINE = MergeTree PARTITION BY week ORDER BY (tenant, hash) SETTINGS index_granularity = 1024;
CREATE TABLE rollups (            -- sums of days, as changes that are added up when they are read
  tenant      LowCardinality(String),
  day         Date,
  component   LowCardinality(String),
  type        LowCardinality(String),
  name        String,
  model       LowCardinality(String), -- '' where there is none
  count       Int64,
  errors      Int64,
  duration_ns Int64,              -- sum
  buckets     Array(Int32),       -- a histogram of durations (store/histogram.py)
  times       Array(Int64),       -- how many durations are in each bucket
  input_tokens       Int64,
  output_tokens      Int64,
  cache_read_tokens  Int64,
  cache_write_tokens Int64,
  base        UInt32,             -- raised when all rows are added up to fewer{version}
) ENGINE = MergeTree PARTITION BY base
ORDER BY (tenant, day, type, component, name, model);
CREATE TABLE notes (              -- notes that people and programs add to a run
  tenant      LowCardinality(String),
  run         Int64,
  id          String,
  span_id     Nullable(String),   -- NULL: a note on the run itself
  event_id    Nullable(String),
  author      Nullable(String),
  created_ns  Int64,
  text        String,{version}
) ENGINE = MergeTree ORDER BY (tenant, run, id, commit);
CREATE TABLE findings (           -- results of the checks of finished runs
  tenant      LowCardinality(String),
  run         Int64,
  changed     UInt64,             -- runs.changed when the checks ran; else the results are stale
  position    Int64,
  check_name  LowCardinality(String),
  check_version Int64,
  finding     Nullable(String),   -- JSON; NULL: the check passed{version}
) ENGINE = MergeTree ORDER BY (tenant, run, commit, position);
CREATE TABLE facts (              -- single values: when the collector last ran, last pruned
  key         String,
  value       String,{version}
) ENGINE = MergeTree ORDER BY (key, commit);
""".replace("{version}", _VERSION_COLUMNS)

_STREAM: Final = r"""
(match(substring(data, 1, 64), '^(data|event|id|retry)?:')
OR position(substring(data, 1, 16384), '\\ndata:') > 0
OR match(substring(data, 1, 16384), '\\}\\s*\\n\\s*\\{'))
"""
"""An expression: true if a body may be a stream of server-sent events or JSON lines."""

# The words of a streamed response are spread over its events. `stream_text` has the text that they
# assemble to. Bodies of stores of version 1 have none: `is_unread_stream` is 1 for those that may
# be streams, so that a search reads them.
_SMALLER = f"""
ALTER TABLE bodies MODIFY COLUMN data CODEC(ZSTD(9));
ALTER TABLE bodies ADD COLUMN IF NOT EXISTS stream_text String CODEC(ZSTD(9)) AFTER data;
ALTER TABLE bodies ADD COLUMN IF NOT EXISTS is_unread_stream UInt8 DEFAULT {_STREAM}
  AFTER stream_text;
ALTER TABLE bodies ADD INDEX IF NOT EXISTS stream_words lower(stream_text)
  TYPE text(tokenizer = 'splitByNonAlpha', posting_list_codec = 'bitpacking');
ALTER TABLE body_keys MODIFY COLUMN id CODEC(T64, ZSTD(1));
ALTER TABLE spans MODIFY COLUMN input_preview String CODEC(ZSTD(9))
  SETTINGS (min_compress_block_size = 4194304, max_compress_block_size = 4194304);
ALTER TABLE spans MODIFY COLUMN output_preview String CODEC(ZSTD(9))
  SETTINGS (min_compress_block_size = 4194304, max_compress_block_size = 4194304);
ALTER TABLE spans MODIFY COLUMN seq CODEC(Delta, ZSTD(1));
ALTER TABLE spans MODIFY COLUMN end_seq CODEC(Delta, ZSTD(1));
ALTER TABLE spans MODIFY COLUMN input_body CODEC(Delta, ZSTD(1));
ALTER TABLE spans MODIFY COLUMN output_body CODEC(Delta, ZSTD(1));
ALTER TABLE spans ADD INDEX IF NOT EXISTS by_input input_body TYPE minmax GRANULARITY 1;
ALTER TABLE spans ADD INDEX IF NOT EXISTS by_output output_body TYPE minmax GRANULARITY 1;
ALTER TABLE logs ADD INDEX IF NOT EXISTS by_body body TYPE minmax GRANULARITY 1;
"""

# Several machines collect journals into one store, and none of them knows the processes of others.
_HOMES = """
ALTER TABLE journals ADD COLUMN IF NOT EXISTS home String AFTER offset;
"""

STEPS: Final[tuple[str, ...]] = (_FIRST_STEP, _SMALLER, _HOMES)
"""Step n upgrades a store from version n to n + 1."""

VERSION: Final = len(STEPS)

_VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_versions (version UInt32, at DateTime DEFAULT now())
ENGINE = MergeTree ORDER BY version
"""


class ClusterOptions(msgspec.Struct, frozen=True):
    """Clauses for tables on a cluster. Without a cluster, all are empty."""

    cluster: str = ""
    """The name of the cluster: statements run ON CLUSTER, and tables are replicated."""
    storage_policy: str = ""
    """The storage policy of the tables, such as one with an S3 disk."""
    sharding_key: str = ""
    """An expression by which distributed tables choose a shard, such as cityHash64(tenant)."""

    def validate(self) -> None:
        """Raise UsageError if an option is not a plain name or expression."""
        for option in (self.cluster, self.storage_policy):
            if option and not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", option):
                raise UsageError(f"{option[:80]!r}: not a valid name of a cluster or policy.")
        if self.sharding_key and not re.fullmatch(r"[A-Za-z0-9_(), ]{1,200}", self.sharding_key):
            raise UsageError(f"{self.sharding_key[:80]!r}: not a valid sharding key.")


def render_ddl(database: str, options: ClusterOptions | None = None) -> list[str]:
    """Return all statements that make a store of this version."""
    options = options or ClusterOptions()
    options.validate()
    on_cluster = f" ON CLUSTER '{options.cluster}'" if options.cluster else ""
    statements = [f"CREATE DATABASE IF NOT EXISTS {database}{on_cluster}"]
    for statement in (_VERSIONS, *_iter_statements("\n".join(STEPS))):
        statements += _render_table(statement, database, options, on_cluster)
    return statements


def _iter_statements(text: str) -> Iterator[str]:
    yield from (part.strip() for part in re.sub(r" *--.*", "", text).split(";\n") if part.strip())


def _render_table(
    statement: str, database: str, options: ClusterOptions, on_cluster: str
) -> list[str]:
    statement = " ".join(statement.replace(";", "").split())
    head = re.match(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) ", statement)
    if head is None:
        return _render_change(statement, database, options, on_cluster)
    name = head[1]
    local = f"{name}_local" if options.sharding_key else name
    body = statement[head.end() :]
    if options.cluster:
        body = body.replace(
            "ENGINE = MergeTree",
            f"ENGINE = ReplicatedMergeTree('/clickhouse/tables/{{shard}}/{database}/{local}',"
            " '{replica}')",
        )
        # Replicated tables always remember tokens, under another setting.
        body = body.replace(
            "non_replicated_deduplication_window", "replicated_deduplication_window"
        )
    if options.storage_policy:
        joiner = ", " if " SETTINGS " in body else " SETTINGS "
        body += f"{joiner}storage_policy = '{options.storage_policy}'"
    statements = [f"CREATE TABLE IF NOT EXISTS {database}.{local}{on_cluster} {body}"]
    if options.sharding_key:
        statements.append(
            f"CREATE TABLE IF NOT EXISTS {database}.{name}{on_cluster} AS {database}.{local}"
            f" ENGINE = Distributed('{options.cluster}', '{database}', '{local}',"
            f" {options.sharding_key if 'tenant' in body else '1'})"
        )
    return statements


def _render_change(
    statement: str, database: str, options: ClusterOptions, on_cluster: str
) -> list[str]:
    head = re.match(r"ALTER TABLE (\w+) ", statement)
    assert head is not None, statement
    change = statement[head.end() :]
    tables = [f"{head[1]}_local" if options.sharding_key else head[1]]
    if options.sharding_key and " COLUMN IF NOT EXISTS " in statement:
        tables.append(head[1])  # a distributed table has columns, but neither codecs nor indexes
    return [f"ALTER TABLE {database}.{table}{on_cluster} {change}" for table in tables]


def read_version(client: Client) -> int:
    """Return the version of a store, or 0 if the database or its tables do not exist."""
    try:
        return int(client.value("SELECT max(version) FROM schema_versions") or 0)
    except ClickHouseError as error:
        if error.code in _MISSING:
            return 0
        raise


_MISSING: Final = ("60", "81")
"""Numbers of errors: no such table, no such database."""


def migrate(client: Client, options: ClusterOptions | None = None) -> int:
    """Make or upgrade a store. Return the version that it had before."""
    before = read_version(client)
    require_version(client, before, at_most=True)
    if before == VERSION:
        return before
    # Statements are idempotent, so a migration that was interrupted is simply repeated.
    with client.outside_database():
        for statement in render_ddl(client.address.database, options):
            client.command(statement)
    client.insert("schema_versions", {"version": "UInt32"}, [(VERSION,)])
    return before


def require_version(client: Client, found: int, *, at_most: bool = False) -> None:
    """Raise StoreError if a store has another version than this program reads."""
    if found > VERSION:
        raise StoreError(
            f"{client.address}: store version {found} is newer than this vestige (expected"
            f" {VERSION}). Upgrade vestige."
        )
    if found < VERSION and not at_most:
        what = "has no store" if not found else f"store version {found}, expected {VERSION}"
        command = "init" if not found else "upgrade"
        raise StoreError(
            f"{client.address}: {what}. Run `vestige store {command} --store {client.address}`."
        )


def iter_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each table and the statement that makes it, with comments."""
    for found in re.finditer(r"(?ms)^CREATE TABLE (\w+) .*?^\)[^;]*;", "\n".join(STEPS)):
        yield found[1], found[0]


def column_types(table: str) -> dict[str, str]:
    """Return the names and types of the columns of a table, as an insert needs them."""
    return dict(_COLUMNS[table])


def _parse_columns(statement: str) -> dict[str, str]:
    found = {}
    for line in re.sub(r" *--.*", "", statement).splitlines():
        match = re.match(r"  (\w+) +([A-Z]\w+(?:\((?:[^()]|\([^()]*\))*\))?)", line)
        if match and match[1] != "INDEX":
            found[match[1]] = match[2]
    return found


def _read_columns() -> dict[str, dict[str, str]]:
    """Return the columns of each table, with those that later steps added."""
    tables = {name: _parse_columns(sql) for name, sql in iter_tables()}
    added = r"ALTER TABLE (\w+) ADD COLUMN IF NOT EXISTS (\w+) (\w+)[^;]* AFTER (\w+);"
    for name, column, kind, before in re.findall(added, " ".join("\n".join(STEPS).split())):
        columns = list(tables[name].items())
        at = [each for each, _ in columns].index(before) + 1
        tables[name] = dict([*columns[:at], (column, kind), *columns[at:]])
    return tables


_COLUMNS: Final = _read_columns()

VERSION_COLUMNS: Final = ("commit", "attempt", "deleted")

EXAMPLES: Final = (
    "SELECT name, count() n, avg(duration_ns) / 1e6 ms FROM spans"
    " WHERE type = 'tool' GROUP BY name ORDER BY n DESC",
    "SELECT concat('r', toString(run), '.s', toString(number)) id, name, status FROM spans"
    " WHERE status = 'error' ORDER BY spans.id DESC LIMIT 20",
    "SELECT JSONExtractString(attributes, 'model') model,"
    " sum(JSONExtractInt(attributes, 'input_tokens')) tokens"
    " FROM spans WHERE type = 'llm' GROUP BY 1",
)


def describe() -> StoreSchema:
    """Return the tables that a user's SQL can read."""
    tables = [
        TableInfo(name, sql, [*_COLUMNS[name]], False)
        for name, sql in iter_tables()
        if name in USER_TABLES
    ]
    return StoreSchema(VERSION, tables, EXAMPLES)


USER_TABLES: Final = ("runs", "spans", "logs", "links", "notes", "findings", "rollups", "bodies")
"""Tables that a user's SQL can read, in their current versions."""
