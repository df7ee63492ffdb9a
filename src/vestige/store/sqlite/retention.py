"""Retention: delete old runs, and evict bodies when a home is too large.

By age: runs whose last record is older than the limit are deleted with their rows. The age of an
imported run counts from its import, or an old run would be deleted right after it.
By size: the least recently **referenced** bodies are evicted, and leave a marker.
Pinned runs and running runs stay, with all that they refer to. Rollups always stay.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence

import msgspec

from vestige.store.protocol import PruneResult, RetentionPolicy
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest.batch_rows import SAVE_HIGHEST_ID

# A run counts as running only while the writer of its root span does: no other can end it.
_RUNNING = """(outcome = 'running' AND EXISTS (
  SELECT 1 FROM spans s JOIN writers w ON w.id = s.writer
  WHERE s.run = runs.id AND s.span_id = runs.root_span AND w.ended IS NULL))"""
_OLD = (
    "SELECT id, run_id FROM runs WHERE max(last_ns, coalesce(imported_ns, 0)) < ?"
    f" AND NOT pinned AND NOT {_RUNNING} ORDER BY id LIMIT ?"
)

_BODIES_OF = """
SELECT input_body FROM spans WHERE input_body IS NOT NULL {and_run}
UNION SELECT output_body FROM spans WHERE output_body IS NOT NULL {and_run}
UNION SELECT body FROM logs WHERE body IS NOT NULL {and_run}
"""
_REFERENCED = _BODIES_OF.format(and_run="")
_PROTECTED = _BODIES_OF.format(
    and_run=f"AND run IN (SELECT id FROM runs WHERE pinned OR {_RUNNING})"
)


def prune(
    connection: sqlite3.Connection, bodies: Bodies, policy: RetentionPolicy, now_ns: int
) -> PruneResult:
    """Apply a policy, inside the caller's transaction."""
    runs = spans = removed = freed = 0
    if policy.age_max_s is not None:
        # The age may be larger than the time since the epoch.
        cutoff_ns = max(0, now_ns - int(policy.age_max_s * 1e9))
        bound = -1 if policy.runs_max is None else policy.runs_max
        old = connection.execute(_OLD, (cutoff_ns, bound)).fetchall()
        if old:
            for table in ("spans", "logs"):
                connection.execute(SAVE_HIGHEST_ID.format(table=table))
        for run, _ in old:
            spans += connection.execute("DELETE FROM spans WHERE run = ?", (run,)).rowcount
            connection.execute("DELETE FROM logs WHERE run = ?", (run,))
            connection.execute("DELETE FROM links WHERE run = ?", (run,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run,))
        runs = len(old)
        if runs:
            query = f"SELECT id FROM bodies WHERE id NOT IN ({_REFERENCED})"
            unused = [row[0] for row in connection.execute(query)]
            # An array, because a large store has millions of bodies and needs 8 bytes for each.
            used = array("q", (row[0] for row in connection.execute(f"{_REFERENCED} ORDER BY 1")))
            deleted = bodies.delete([*unused, *bodies.find_unused_packs(used)])
            removed, freed = deleted.count, deleted.freed_bytes
            connection.execute(
                "DELETE FROM writers WHERE ended IS NOT NULL AND last_ns < ?"
                " AND id NOT IN (SELECT writer FROM spans) AND id NOT IN (SELECT writer FROM logs)",
                (cutoff_ns,),
            )
            _delete_orphans(connection, [run_id for _, run_id in old])
    if policy.body_bytes_max is not None:
        protected = [row[0] for row in connection.execute(_PROTECTED)]
        evicted = bodies.evict_oldest(policy.body_bytes_max, protected, now_ns)
        removed += evicted.count
        freed += evicted.freed_bytes
    return PruneResult(runs, spans, removed, freed)


def _delete_orphans(connection: sqlite3.Connection, run_ids: Sequence[str]) -> None:
    """Delete the remaining rows of deleted runs and writers."""
    connection.execute(
        "DELETE FROM unknown WHERE run_id IN (SELECT value FROM json_each(?))"
        " OR writer NOT IN (SELECT writer FROM writers)",
        (msgspec.json.encode(run_ids).decode(),),
    )
    connection.execute(
        "DELETE FROM remote_writers WHERE over AND writer NOT IN (SELECT writer FROM writers)"
    )
