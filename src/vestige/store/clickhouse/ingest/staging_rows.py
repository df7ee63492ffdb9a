"""Load the rows that a batch of records may change, from ClickHouse into the staging database.

Of a run, only the spans that a batch refers to are loaded, never all. A run or writer that does not
exist is remembered, so that a transaction looks it up once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from vestige.record.call_bodies import CALL_BODY
from vestige.record.crash_stamp_seq import STAMP_SEQ_END, STAMP_SEQ_MIN
from vestige.record.otlp_sequence_numbers import is_external_writer
from vestige.record.types import MODEL_CALL_TYPES, AnyRecord, SpanOpen, Unknown
from vestige.store.clickhouse.ingest.merge_in_memory import (
    IDS_PER_QUERY,
    PREVIEW_CHARACTERS,
    Staging,
)

RUN_COLUMNS: Final = (
    "id, run_id, name, component, conversation_id, tenant, started_ns, last_ns, ended_ns,"
    " duration_ns, outcome, root_span, span_count, log_count, error_count, own_count, input_tokens,"
    " output_tokens, implicit, process_run, pinned, imported_ns, missing_count"
)
WRITER_COLUMNS: Final = (
    "id, writer, pid, supervisor, process_span, first_ns, last_ns, seen, malformed, dropped, ended,"
    " tenant"
)
SPAN_COLUMNS: Final = (
    "id, run, number, span_id, parent_id, writer, seq, started_ns, type, name, component, status,"
    " duration_ns, end_seq, attributes, redacted, input_body, input_bytes, input_info, output_body,"
    " output_bytes, output_info"
)
LOG_COLUMNS: Final = (
    "id, run, span_id, writer, seq, time_ns, level, component, message, attributes, redacted, body,"
    " body_bytes, body_info"
)
_MODEL_CALLS: Final = ", ".join(f"'{each}'" for each in MODEL_CALL_TYPES)
_STAMPED: Final = f">= {STAMP_SEQ_MIN} AND {{0}} < {STAMP_SEQ_END}"


def insert_rows(staging: Staging, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert loaded rows, which are not changes. A row that is there already stays."""
    connection = staging.connection
    query = f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
    if table == "writers":  # the row with the highest id may be the one that only numbers them
        query += " AND writer <> ''"
    known = {row[0] for row in connection.execute(query, (str([row[0] for row in rows]),))}
    rows = [row for row in rows if row[0] not in known]
    if not rows:
        return
    marks = ", ".join("?" * len(columns.split(", ")))
    if table == "writers":
        connection.execute(
            "DELETE FROM writers WHERE writer = '' AND id IN (SELECT value FROM json_each(?))",
            (str([row[0] for row in rows]),),
        )
    connection.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", rows)
    connection.executemany(
        "DELETE FROM changed WHERE kind = ? AND id = ?", [(table, row[0]) for row in rows]
    )


def load_runs(staging: Staging, run_ids: Iterable[str]) -> list[int]:
    """Load runs by their ids. Return the row ids of those that exist."""
    return _load_runs(staging, "run_id", "String", staging.find_new("run", run_ids))


def load_runs_by_row(staging: Staging, rows: Iterable[int]) -> None:
    _load_runs(staging, "id", "Int64", list(rows))


def _load_runs(staging: Staging, column: str, kind: str, keys: Sequence[Any]) -> list[int]:
    found = []
    for part in _split(keys if staging.view.number else ()):
        source = staging.view.current("runs", f"{column} IN {{keys:Array({kind})}}")
        rows = staging.query(
            f"SELECT {RUN_COLUMNS}, changed, first_week FROM {source}", keys=list(part)
        )
        for row in rows:
            staging.runs[row[0]] = (row[-2], row[-1])
            staging.known.setdefault("run", set()).add(row[1])
        insert_rows(staging, "runs", RUN_COLUMNS, [row[:-2] for row in rows])
        found += [row[0] for row in rows]
    return found


def load_writers(staging: Staging, names: Iterable[str]) -> None:
    """Load writers by name, with their crash stamps, and their rows as remote writers."""
    new = staging.find_new("writer", names)
    ended = _load_writers(staging, "writer", "String", new)
    for part in _split(new if staging.view.number else ()):
        source = staging.view.current("remote_writers", "writer IN {keys:Array(String)}")
        rows = staging.query(f"SELECT writer, over, fault, heard_ns FROM {source}", keys=list(part))
        staging.connection.executemany(
            "INSERT OR IGNORE INTO remote_writers(writer, over, fault, heard_ns)"
            " VALUES (?, ?, ?, ?)",
            rows,
        )
    if ended:
        _load_stamps(staging, ended)


def _load_writers(staging: Staging, column: str, kind: str, keys: Sequence[Any]) -> list[int]:
    """Load writers. Return the row ids of those that have ended."""
    ended = []
    for part in _split(keys if staging.view.number else ()):
        source = staging.view.current("writers", f"{column} IN {{keys:Array({kind})}}")
        rows = staging.query(f"SELECT {WRITER_COLUMNS} FROM {source}", keys=list(part))
        insert_rows(staging, "writers", WRITER_COLUMNS, rows)
        staging.known.setdefault("writer row", set()).update(row[0] for row in rows)
        ended += [row[0] for row in rows if row[10] is not None and not is_external_writer(row[1])]
    return ended


def _load_stamps(staging: Staging, writers: Sequence[int]) -> None:
    """Load the log records of crash stamps, and the spans that they closed."""
    for part in _split(writers):
        where = f"writer IN {{keys:Array(Int64)}} AND seq {_STAMPED.format('seq')}"
        source = staging.view.current("logs", where)
        logs = staging.query(f"SELECT {LOG_COLUMNS} FROM {source}", keys=list(part))
        if not logs:
            continue
        insert_rows(staging, "logs", LOG_COLUMNS, logs)
        ids = staging.query(
            f"SELECT DISTINCT id FROM spans WHERE {staging.view.visible('spans')}"
            f" AND writer IN {{keys:Array(Int64)}} AND end_seq {_STAMPED.format('end_seq')}",
            keys=list(part),
        )
        _load_spans(staging, "id IN {keys:Array(Int64)}", [row[0] for row in ids], "Int64")
        runs = {log[1] for log in logs}
        runs.update(row[0] for row in staging.connection.execute("SELECT run FROM spans"))
        load_runs_by_row(staging, runs)


def load_spans(
    staging: Staging,
    runs: Sequence[int],
    span_ids: Iterable[str],
    parents: Iterable[str] = (),
    any_child_of: Iterable[str] = (),
) -> None:
    """Load spans of runs by id, model calls inside spans, and all children of some."""
    in_runs = f"run IN ({', '.join(map(str, map(int, runs)))})"
    for column, condition, ids in (
        ("span_id", "", span_ids),
        ("parent_id", f" AND type IN ({_MODEL_CALLS})", parents),
        ("parent_id", "", any_child_of),
    ):
        keys = staging.find_new(f"{column}{condition} {in_runs}", ids)
        for part in _split(keys):
            # Only these columns of a span change, so the ids are found in any version first.
            found = staging.query(
                f"SELECT DISTINCT id FROM spans WHERE {staging.view.visible('spans')} AND {in_runs}"
                f" AND {column} IN {{keys:Array(String)}}{condition}",
                keys=list(part),
            )
            where = f"{in_runs} AND id IN {{keys:Array(Int64)}}"
            _load_spans(staging, where, [row[0] for row in found], "Int64")


def _load_spans(staging: Staging, where: str, keys: Sequence[Any], kind: str) -> None:
    assert kind in where
    for part in _split(keys):
        source = staging.view.current("spans", where)
        rows = staging.query(
            f"SELECT {SPAN_COLUMNS}, input_preview, output_preview FROM {source}", keys=list(part)
        )
        for row in rows:
            staging.previews[row[0]] = (row[-2], row[-1])
        insert_rows(staging, "spans", SPAN_COLUMNS, [row[:-2] for row in rows])
        writers = staging.find_new("writer row", [row[5] for row in rows])
        _load_writers(staging, "id", "Int64", writers)


def load_for_records(staging: Staging, records: Sequence[AnyRecord]) -> None:
    """Load all rows that the SQLite engine may read or change while it adds these records."""
    load_writers(staging, {record.writer for record in records})
    plain = [record for record in records if not isinstance(record, Unknown)]
    rows = load_runs(staging, {record.run_id for record in plain})
    rows += [row for row in staging.runs if row not in rows]
    if not rows:
        return
    names = {record.run_id for record in plain}
    runs = {
        run_id: (row, root)
        for row, run_id, root in staging.connection.execute(
            "SELECT id, run_id, root_span FROM runs"
        )
        if run_id in names and row in staging.runs
    }
    known = [record for record in plain if record.run_id in runs]
    if not known:
        return
    ids = {record.span_id for record in known if record.span_id is not None}
    parents = {
        record.parent_id for record in known if isinstance(record, SpanOpen) and record.parent_id
    }
    external = [record for record in known if is_external_writer(record.writer)]
    around = {
        record.parent_id
        for record in external
        if isinstance(record, SpanOpen) and record.parent_id and record.type in MODEL_CALL_TYPES
    }
    roots = {root for each in external if (root := runs[each.run_id][1]) is not None}
    touched = sorted({row for row, _ in runs.values()})
    for part in _split(touched):
        load_spans(staging, part, ids | parents | roots, ids | around, roots)
    if external:
        _load_external_logs(staging, [runs[each.run_id][0] for each in external], external, around)


def _load_external_logs(
    staging: Staging, runs: Sequence[int], records: Sequence[AnyRecord], around: set[str]
) -> None:
    """Load log records of an exporter: those that may come again, and bodies of model calls."""
    in_runs = f"run IN ({', '.join(map(str, sorted(set(runs))))})"
    span_ids = {getattr(record, "span_id", None) for record in records} - {None}
    for keys, condition in ((span_ids, ""), (around, " AND body IS NOT NULL")):
        for part in _split(sorted(keys)):
            source = staging.view.current(
                "logs", f"{in_runs} AND span_id IN {{keys:Array(String)}}{condition}"
            )
            rows = staging.query(f"SELECT {LOG_COLUMNS} FROM {source}", keys=list(part))
            insert_rows(staging, "logs", LOG_COLUMNS, rows)
            _load_previews(staging, [row[11] for row in rows if f'"{CALL_BODY}"' in (row[9] or "")])
    for numbers in _split(sorted({record.seq for record in records})):
        source = staging.view.current("logs", f"{in_runs} AND seq IN {{keys:Array(Int64)}}")
        rows = staging.query(f"SELECT {LOG_COLUMNS} FROM {source}", keys=list(numbers))
        insert_rows(staging, "logs", LOG_COLUMNS, rows)


def _load_previews(staging: Staging, bodies: Iterable[int | None]) -> None:
    """Load the first characters of bodies that a model call may get (join_call_bodies.py)."""
    for part in _split(staging.find_new("preview", set(bodies) - {None})):
        source = staging.view.current("bodies", "id IN {keys:Array(Int64)}")
        rows = staging.query(
            f"SELECT id, toValidUTF8(substring(data, 1, {PREVIEW_CHARACTERS * 4})) FROM {source}",
            keys=list(part),
        )
        for body, text in rows:
            staging.bodies.previews.setdefault(body, text[:PREVIEW_CHARACTERS])


def _split(keys: Sequence[Any]) -> list[Sequence[Any]]:
    return [keys[at : at + IDS_PER_QUERY] for at in range(0, len(keys), IDS_PER_QUERY)]
