"""Retention: what goes, when a home is full or runs are old.

By age: runs whose last record is older than the bound go, with their rows; one that was imported
counts from then, or an old one would go as soon as it came. By size:
bodies go, those first that were **referred to** least recently, and leave a marker.
Pinned runs stay, with all that they refer to; so do runs that are still running.
Rollups stay in any case.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence

import msgspec

from vestige.limits import RETENTION_AGE_S, RETENTION_BODY_BYTES
from vestige.store.protocol import Pruned, RetentionPolicy
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.ingest.rows import KEEP_TOP

DEFAULT_RETENTION = RetentionPolicy(RETENTION_AGE_S, RETENTION_BODY_BYTES)

# Without its beginning, or when who began it is gone, nobody is left to say that a run ended.
_RUNNING = """(outcome = 'running' AND EXISTS (
  SELECT 1 FROM spans s JOIN writers w ON w.id = s.writer
  WHERE s.run = runs.id AND s.span_id = runs.root_span AND w.ended IS NULL))"""
_OLD = (
    "SELECT id, run_id FROM runs WHERE max(last_ns, coalesce(imported_ns, 0)) < ?"
    f" AND NOT pinned AND NOT {_RUNNING}"
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
) -> Pruned:
    """Apply a policy, inside the caller's transaction."""
    runs = spans = gone = freed = 0
    if policy.age_max_s is not None:
        cutoff_ns = max(
            0, now_ns - int(policy.age_max_s * 1e9)
        )  # an age may be as good as for ever
        old = connection.execute(_OLD, (cutoff_ns,)).fetchall()
        if old:
            for table in ("spans", "logs"):
                connection.execute(KEEP_TOP.format(table=table))
        for run, _ in old:
            spans += connection.execute("DELETE FROM spans WHERE run = ?", (run,)).rowcount
            connection.execute("DELETE FROM logs WHERE run = ?", (run,))
            connection.execute("DELETE FROM links WHERE run = ?", (run,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run,))
        runs = len(old)
        if runs:
            query = f"SELECT id FROM bodies WHERE id NOT IN ({_REFERENCED})"
            unused = [row[0] for row in connection.execute(query)]
            # An array, not a list: a large store has millions, and 8 bytes each are enough.
            used = array("q", (row[0] for row in connection.execute(f"{_REFERENCED} ORDER BY 1")))
            forgotten = bodies.delete([*unused, *bodies.find_unused_packs(used)])
            gone, freed = forgotten.count, forgotten.freed_bytes
            connection.execute(
                "DELETE FROM writers WHERE ended IS NOT NULL AND last_ns < ?"
                " AND id NOT IN (SELECT writer FROM spans) AND id NOT IN (SELECT writer FROM logs)",
                (cutoff_ns,),
            )
            _forget_rest(connection, [run_id for _, run_id in old])
    if policy.body_bytes_max is not None:
        protected = [row[0] for row in connection.execute(_PROTECTED)]
        evicted = bodies.evict_oldest(policy.body_bytes_max, protected, now_ns)
        gone += evicted.count
        freed += evicted.freed_bytes
    return Pruned(runs, spans, gone, freed)


def _forget_rest(connection: sqlite3.Connection, run_ids: Sequence[str]) -> None:
    """What else is known of runs and writers that are gone."""
    connection.execute(
        "DELETE FROM unknown WHERE run_id IN (SELECT value FROM json_each(?))"
        " OR writer NOT IN (SELECT writer FROM writers)",
        (msgspec.json.encode(run_ids).decode(),),
    )
    connection.execute(
        "DELETE FROM remote_writers WHERE over AND writer NOT IN (SELECT writer FROM writers)"
    )
