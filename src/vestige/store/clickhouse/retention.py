"""Retention: delete old runs, evict bodies, and drop the weeks that are empty then.

A deleted run or an evicted body is a new version of its row, so nothing is rewritten. The space of
a week is freed when no run has rows in it any more: then its partitions are dropped as a whole.
The rules are those of the SQLite engine (store/sqlite/retention.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from vestige._runtime import clock
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest.merge_in_memory import Staging
from vestige.store.clickhouse.ingest.row_export import make_body_row
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.protocol import PruneResult, RetentionPolicy

_WEEKLY: Final = ("spans", "logs", "links", "closes", "bodies", "body_keys")
"""Tables whose partitions are weeks."""

_IDS_PER_QUERY: Final = 2_000


class Plan(msgspec.Struct, frozen=True):
    """The rows that a retention pass removes."""

    runs: Sequence[tuple[int, str]]
    unused: Sequence[Sequence[Any]]
    """Bodies that no record refers to afterwards: id, tenant, size, first_ns, week."""
    evicted: Sequence[Sequence[Any]]
    result: PruneResult


def plan(staging: Staging, policy: RetentionPolicy, now_ns: int) -> Plan:
    """Find what a policy removes, in the state of a transaction."""
    view = staging.view
    runs: Sequence[Sequence[Any]] = []
    unused: list[Sequence[Any]] = []
    evicted: list[Sequence[Any]] = []
    spans = 0
    if policy.age_max_s is not None:
        runs = staging.query(
            _OLD.format(
                runs=view.current("runs"),
                spans=view.current("spans", "type IN ('run', 'process', '?', 'step')"),
                writers=view.current("writers", "1"),
                limit="" if policy.runs_max is None else f" LIMIT {int(policy.runs_max)}",
            ),
            cutoff=max(0, now_ns - int(policy.age_max_s * 1e9)),
        )
        spans = sum(row[2] for row in runs)
        unused = _find_unused(staging, [row[0] for row in runs])
    if policy.body_bytes_max is not None:
        gone = {row[0] for row in unused}
        evicted = _find_oldest(staging, policy.body_bytes_max, gone)
    removed = [*unused, *evicted]
    result = PruneResult(len(runs), spans, len(removed), sum(row[2] for row in removed))
    return Plan([(row[0], row[1]) for row in runs], unused, evicted, result)


def _find_unused(staging: Staging, runs: Sequence[int]) -> list[Sequence[Any]]:
    """Return the bodies that only these runs refer to."""
    if not runs:
        return []
    view = staging.view
    deleted = f"run IN ({', '.join(map(str, runs))})"
    remaining = f"NOT ({deleted}) AND run IN (SELECT id FROM {view.current('runs')})"
    sql = (
        "SELECT id, tenant, size_bytes, first_ns, week"
        f" FROM {view.current('bodies')} WHERE evicted_ns IS NULL"
        f" AND id IN ({_references(view, deleted)}) AND id NOT IN ({_references(view, remaining)})"
    )
    return list(staging.query(sql))


def _references(view: View, where: str) -> str:
    parts = [
        f"SELECT assumeNotNull({column}) FROM {table} WHERE {view.visible(table)} AND ({where})"
        f" AND {column} IS NOT NULL"
        for table, column in (("spans", "input_body"), ("spans", "output_body"), ("logs", "body"))
    ]
    return " UNION ALL ".join(parts)


def _find_oldest(staging: Staging, bytes_max: int, gone: set[int]) -> list[Sequence[Any]]:
    """Return the oldest bodies that no pinned or running run refers to, over the limit."""
    view = staging.view
    stored = f"{view.current('bodies')} WHERE evicted_ns IS NULL"
    total = staging.query(f"SELECT sum(size_bytes) FROM {stored}")[0][0]
    excess = total - bytes_max
    if excess <= 0:
        return []
    protected = _references(
        view, f"run IN (SELECT id FROM {view.current('runs')} WHERE pinned OR outcome = 'running')"
    )
    rows = staging.query(
        f"SELECT id, tenant, size_bytes, first_ns, week FROM {stored}"
        f" AND id NOT IN ({protected}) ORDER BY first_ns, id"
    )
    found = []
    for row in rows:
        if excess <= 0:
            break
        if row[0] not in gone:
            found.append(row)
            excess -= row[2]
    return found


def stage(staging: Staging, found: Plan, now_ns: int) -> None:
    """Add the versions that delete the rows of a plan to a transaction."""
    week = datetime.date.fromisoformat(staging.week)
    view, extra = staging.view, staging.extra
    names = schema.column_types("runs")
    columns = ", ".join(name for name in names if name not in schema.VERSION_COLUMNS)
    for at in range(0, len(found.runs), _IDS_PER_QUERY):
        keys = [run for run, _ in found.runs[at : at + _IDS_PER_QUERY]]
        source = view.current("runs", "id IN {keys:Array(Int64)}")
        rows = staging.query(f"SELECT {columns} FROM {source}", keys=keys)
        extra.setdefault("runs", []).extend((*row, 1) for row in rows)
    digests = _read_digests(staging, [row[0] for row in (*found.unused, *found.evicted)])
    for removed, deleted in ((found.unused, 1), (found.evicted, 0)):
        for body, tenant, size, first_ns, body_week in removed:
            evicted_ns = None if deleted else now_ns
            extra.setdefault("bodies", []).append(
                make_body_row(tenant, body, size, first_ns, b"", week, evicted_ns, deleted)
            )
            # Otherwise the same text would be taken for stored when it comes again.
            if digest := digests.get((tenant, body)):
                extra.setdefault("body_keys", []).append((tenant, digest, body, body_week, 1))


def _read_digests(staging: Staging, bodies: Sequence[int]) -> dict[tuple[str, int], bytes]:
    """Return the hashes of bodies by tenant and id."""
    found = {}
    for at in range(0, len(bodies), _IDS_PER_QUERY):
        rows = staging.query(
            f"SELECT tenant, id, hex(hash) FROM body_keys WHERE {staging.view.visible('body_keys')}"
            " AND id IN {ids:Array(Int64)}",
            ids=list(bodies[at : at + _IDS_PER_QUERY]),
        )
        found.update({(tenant, body): bytes.fromhex(digest) for tenant, body, digest in rows})
    return found


def drop_empty_weeks(client: Client, view: View) -> None:
    """Drop the partitions of weeks in which no run has rows, except the last two weeks."""
    today = datetime.datetime.fromtimestamp(clock.SYSTEM.now_ns() / 1e9, datetime.UTC).date()
    recent = today - datetime.timedelta(days=today.weekday() + 7)
    live = client.query(
        f"SELECT DISTINCT first_week, week FROM {view.current('runs')}", **view.parameters()
    )
    for table in _WEEKLY:
        weeks = client.query(
            "SELECT DISTINCT partition_id, toDate(partition) FROM system.parts"
            " WHERE database = {database:String} AND table = {table:String} AND active"
            " AND toDate(partition) < {recent:Date}",
            database=client.address.database,
            table=table,
            recent=recent,
        )
        for partition, week in weeks:
            if not any(first <= week <= last for first, last in live):
                client.command(f"ALTER TABLE {table} DROP PARTITION ID '{int(partition)}'")


def has_rootless(client: Client, view: View) -> bool:
    """Return whether a recorded run without a root span is still running."""
    # Such a run has such a version. To find these needs no order, unlike to find all newest ones.
    ids = f"SELECT id FROM runs WHERE {view.visible('runs')} AND {_ROOTLESS}"
    sql = f"SELECT count() FROM {view.current('runs', f'id IN ({ids})')} WHERE {_ROOTLESS}"
    return bool(client.query(sql, **view.parameters())[0][0])


def find_rootless(staging: Staging) -> list[int]:
    """Return recorded runs without a root span, all of whose writers have ended."""
    view = staging.view
    runs = f"SELECT id FROM {view.current('runs')} WHERE {_ROOTLESS}"
    running = f"SELECT id FROM {view.current('writers')} WHERE ended IS NULL"
    rows = staging.query(
        f"SELECT id FROM ({runs}) WHERE id NOT IN (SELECT run FROM spans"
        f" WHERE {view.visible('spans')} AND run IN ({runs}) AND writer IN ({running}))"
        f" AND id NOT IN (SELECT run FROM logs"
        f" WHERE {view.visible('logs')} AND run IN ({runs}) AND writer IN ({running}))"
    )
    return [row[0] for row in rows]


_ROOTLESS: Final = "root_span IS NULL AND outcome = 'running' AND imported_ns IS NULL"

# A run counts as running only while the writer of its root span does: no other can end it.
_OLD: Final = """
SELECT id, run_id, span_count FROM {runs}
WHERE greatest(last_ns, coalesce(imported_ns, 0)) < {{cutoff:Int64}} AND NOT pinned
  AND NOT (outcome = 'running' AND (id, assumeNotNull(root_span)) IN (
    SELECT s.run, s.span_id FROM {spans} s
    WHERE s.writer IN (SELECT id FROM {writers} WHERE ended IS NULL)))
ORDER BY id{limit}
"""
