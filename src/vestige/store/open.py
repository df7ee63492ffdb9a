"""Open a store by its location: the path of a SQLite file, or the address of a ClickHouse store.

    with open_store(home.store) as store: ...                              # to write
    with open_store(home.store, readonly=True, tenant="acme") as store:    # to read its runs

Only this module chooses an engine. All other code knows the interface (store/protocol.py).
Engines are imported on use, because most of the recorder needs no store.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vestige.store.clickhouse.administration import EngineStatus
    from vestige.store.clickhouse.copy_store import Progress
    from vestige.store.interface.ingest import ReadSpill
    from vestige.store.interface.search import StoreSchema
    from vestige.store.protocol import Store

Location = str | Path
"""A path, or the address of a store on a server: clickhouse://HOST:8123/DATABASE."""


def open_store(
    location: Location,
    *,
    readonly: bool = False,
    read_spill: ReadSpill | None = None,
    lasting: bool = True,
    synced: bool = False,
    tenant: str | None = None,
    root: Path | None = None,
    home_id: str = "",
) -> Store:
    """Open a store; a writer creates and migrates it.

    `read_spill` reads bodies that were too large for a journal line.
    `lasting`: the store survives a power cut. `synced`: each committed transaction does, too;
    otherwise the last transactions may be missing afterwards, but never in part.
    `tenant`: queries see only its runs, and rows that belong to them.
    `root`: the data directory whose prices apply, if the store is on a server.
    `home_id`: the data directory whose journals the caller collects, if others use the store, too.
    """
    if is_server_address(location):
        from vestige.store.clickhouse import clickhouse_store
        from vestige.store.clickhouse.address import parse_address

        return clickhouse_store.ClickHouseStore.open(
            parse_address(str(location)),
            readonly=readonly,
            read_spill=read_spill or clickhouse_store.no_spill,
            tenant=tenant,
            root=root,
            home_id=home_id,
        )
    from vestige.store.sqlite.sqlite_store import SqliteStore, no_spill

    return SqliteStore.open(
        _get_path(location),
        readonly=readonly,
        read_spill=read_spill or no_spill,
        lasting=lasting,
        synced=synced,
        tenant=tenant,
    )


def read_change_marker(location: Location) -> bytes:
    """Return bytes that change whenever the rows of a store do.

    Never blocks for a file; a store on a server is asked, at most every second.
    """
    if is_server_address(location):
        from vestige.store.clickhouse.change_detector import read_change_marker as read_marker

        return read_marker(str(location))
    from vestige.store.sqlite.change_detector import read_change_marker

    return read_change_marker(_get_path(location))


def read_pending_bytes(location: Location) -> int:
    """Return the size of the writes that are outside the main file, as after a kill."""
    if is_server_address(location):
        return 0
    from vestige.store.sqlite.database_file import get_log_bytes

    return get_log_bytes(_get_path(location))


def copy_store(location: Location, target: Path) -> None:
    """Copy the files of a store that no process writes. Copy nothing if there are none."""
    from vestige.store.sqlite.database_file import copy_files

    copy_files(_get_path(location), target)


def describe_schema(location: Location | None = None) -> StoreSchema:
    """Return the tables for a user's SQL; of the embedded store without a location."""
    if location is not None and is_server_address(location):
        from vestige.store.clickhouse.schema import describe as describe_clickhouse

        return describe_clickhouse()
    from vestige.store.sqlite.schema import describe

    if location is not None:
        _get_path(location)
    return describe()


def make_server_store(
    location: str, *, cluster: str = "", storage_policy: str = "", sharding_key: str = ""
) -> tuple[int, int]:
    """Make or upgrade a store on a server. Return its version before and after."""
    from vestige.store.clickhouse import administration, schema

    return administration.make_store(
        location, schema.ClusterOptions(cluster, storage_policy, sharding_key)
    )


def render_server_schema(
    location: str, *, cluster: str = "", storage_policy: str = "", sharding_key: str = ""
) -> str:
    """Return the statements that make a store on a server."""
    from vestige.store.clickhouse.address import parse_address
    from vestige.store.clickhouse.schema import ClusterOptions, render_ddl

    options = ClusterOptions(cluster, storage_policy, sharding_key)
    return ";\n".join(render_ddl(parse_address(location).database, options)) + ";"


def grant_on_server(location: str, tenant: str, user: str, *, run: bool = True) -> str:
    """Let a user of the database read the rows of one tenant. Return the statements."""
    from vestige.store.clickhouse.address import parse_address
    from vestige.store.clickhouse.client import Client
    from vestige.store.clickhouse.row_policies import render_grants

    address = parse_address(location)
    statements = render_grants(address, tenant, user)
    if run:
        client = Client.connect(address)
        try:
            for statement in statements:
                client.command(statement)
        finally:
            client.close()
    return ";\n".join(statements) + ";"


def read_server_status(location: str) -> EngineStatus:
    """Return versions, sizes and problems of a store on a server."""
    from vestige.store.clickhouse.administration import read_status

    return read_status(location)


def copy_to_server(path: Path, location: str) -> Iterator[Progress]:
    """Copy a file to a store on a server. A copy that was interrupted goes on."""
    from vestige.store.clickhouse.copy_store import copy_to_clickhouse

    yield from copy_to_clickhouse(path, location)


def verify_server_copy(path: Path, location: str) -> Mapping[str, tuple[int, int]]:
    """Compare a copy with its source. Raise StoreError if they differ."""
    from vestige.store.clickhouse.copy_store import verify_copy

    return verify_copy(path, location)


def is_server_address(location: Location) -> bool:
    """Return whether a location is the address of a store on a server."""
    return isinstance(location, str) and bool(re.match(r"(?i)clickhouses?://", location))


def _get_path(location: Location) -> Path:
    if isinstance(location, Path):
        return location
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", location):
        raise UsageError(
            f"{location}: unknown kind of store {scheme[1]!r} (expected the path of a file, or"
            " clickhouse://HOST:8123/DATABASE)."
        )
    return Path(location)
