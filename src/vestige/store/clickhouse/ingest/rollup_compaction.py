"""Add up the rollups of all commits to one row for each group, so that sums stay fast to read.

Each commit adds rows with its own sums (row_export.py). Rows have the number of a base. Compaction
is a commit that adds all rows of the base up, gives the sums the next number, and makes that
number the one to read. So sums change together with the commit, once, and no row is rewritten. The
rows of older bases are dropped as partitions, but for one, which a reader may still use.
"""

from __future__ import annotations

from typing import Final

from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest.merge_in_memory import Staging
from vestige.store.clickhouse.read_snapshot import View

ROWS_MIN: Final = 50_000
"""Rows below which reading takes a few ms in any case."""
_TIMES: Final = 3
"""The number of rows for each row that the last compaction left."""
_NAMES: Final = "tenant, day, component, type, name, model"
_SUMS: Final = (
    "sum(count), sum(errors), sum(duration_ns), sumMap(buckets, times), sum(input_tokens),"
    " sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens)"
)


def is_due(client: Client, view: View) -> bool:
    """Return whether there are many more rows than after the last compaction."""
    rows, left = client.query(
        "SELECT count(), countIf(commit = (SELECT min(commit) FROM rollups"
        f" WHERE {view.visible('rollups')})) FROM rollups WHERE {view.visible('rollups')}",
        **view.parameters(),
    )[0]
    return bool(rows >= ROWS_MIN and rows >= _TIMES * left)


def compact(staging: Staging) -> None:
    """Add the sums of all rollups to a transaction, as those of the next base."""
    rows = staging.query(
        f"SELECT {_NAMES}, {_SUMS} FROM rollups WHERE {staging.view.visible('rollups')}"
        f" GROUP BY {_NAMES} ORDER BY {_NAMES}"
    )
    staging.base = staging.view.base + 1
    staging.extra.setdefault("rollups", []).extend(
        (*row[:9], list(row[9][0]), list(row[9][1]), *row[10:], 0) for row in rows
    )


def drop_old(client: Client, view: View) -> None:
    """Drop the rollups of bases that no reader uses any more."""
    old = client.query(
        "SELECT DISTINCT partition_id FROM system.parts WHERE database = {database:String}"
        " AND table = 'rollups' AND active AND toUInt32(partition) + 1 < {base:UInt32}",
        database=client.address.database,
        base=view.base,
    )
    for (partition,) in old:
        client.command(f"ALTER TABLE rollups DROP PARTITION ID '{int(partition)}'")
