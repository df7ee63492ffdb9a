"""Make, upgrade and describe a store, for `vestige store` and `vestige doctor`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import read_view
from vestige.store.clickhouse.schema import ClusterOptions

PARTS_MAX = 300
"""Parts of one partition. At 3000, ClickHouse refuses inserts."""


class EngineStatus(msgspec.Struct, frozen=True):
    """The state of a store on a server."""

    address: str
    server_version: str
    schema_version: int
    """0: the database has no store."""
    expected_version: int
    commits: int = 0
    commit_age_s: float = 0.0
    """Seconds since the last commit."""
    failed_attempts: int = 0
    """Attempts to commit that failed or conflicted, and left rows that are never read."""
    rows: int = 0
    bytes_on_disk: int = 0
    parts: int = 0
    parts_in_partition: int = 0
    """The highest number of parts in one partition."""
    disk_free_bytes: int = 0
    problems: tuple[str, ...] = ()


def make_store(text: str, options: ClusterOptions | None = None) -> tuple[int, int]:
    """Make or upgrade a store. Return its version before and after."""
    client = Client.connect(parse_address(text))
    try:
        return schema.migrate(client, options), schema.VERSION
    finally:
        client.close()


def read_status(text: str) -> EngineStatus:
    """Return the state of a store."""
    client = Client.connect(parse_address(text))
    try:
        return _read_status(client)
    finally:
        client.close()


def read_problems(client: Client) -> Sequence[str]:
    """Return what an operator should look at."""
    return _read_status(client).problems


def _read_status(client: Client) -> EngineStatus:
    address = client.address
    with client.outside_database():
        version = str(client.value("SELECT version()"))
    found = schema.read_version(client)
    status = EngineStatus(str(address), version, found, schema.VERSION)
    if not found:
        return status
    view = read_view(client)
    rows, size, parts = client.query(
        "SELECT sum(rows), sum(bytes_on_disk), count() FROM system.parts"
        " WHERE database = {database:String} AND active",
        database=address.database,
    )[0]
    most = client.value(
        "SELECT max(n) FROM (SELECT count() AS n FROM system.parts"
        " WHERE database = {database:String} AND active GROUP BY table, partition_id)",
        database=address.database,
    )
    age = client.value(
        "SELECT toFloat64(now64(3)) - toFloat64(max(at)) FROM commits HAVING count() > 0"
    )
    free = client.value("SELECT min(free_space) FROM system.disks WHERE type = 'Local'")
    status = msgspec.structs.replace(
        status,
        commits=view.number,
        commit_age_s=float(age or 0.0),
        failed_attempts=len(view.dead),
        rows=rows,
        bytes_on_disk=size,
        parts=parts,
        parts_in_partition=most or 0,
        disk_free_bytes=free or 0,
    )
    return msgspec.structs.replace(status, problems=tuple(_find_problems(status)))


def _find_problems(status: EngineStatus) -> list[str]:
    problems = []
    if status.schema_version != status.expected_version:
        problems.append(
            f"the store has version {status.schema_version} (expected {status.expected_version};"
            " run `vestige store upgrade`)"
        )
    if status.parts_in_partition > PARTS_MAX:
        problems.append(
            f"a partition has {status.parts_in_partition} parts (expected at most {PARTS_MAX}):"
            " merges do not keep up with inserts"
        )
    if status.disk_free_bytes < status.bytes_on_disk // 2:
        problems.append("the disk has less free space than half of the store, which merges need")
    return problems
