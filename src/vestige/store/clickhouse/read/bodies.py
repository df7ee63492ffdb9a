"""Read bodies, whole or in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from vestige.errors import NotFoundError
from vestige.limits import MIB
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import View

_IDS_PER_QUERY: Final = 1_000
_BYTES_PER_QUERY: Final = 32 * MIB


def read_body(client: Client, view: View, body_id: int, start: int, end: int | None) -> bytes:
    """Return a slice of a body, which the server cuts."""
    source = view.current("bodies", "id = {id:Int64}")
    length = 2**62 if end is None else max(0, end - start)
    rows = client.query(
        "SELECT substring(data, {start:Int64} + 1, {length:Int64}) AS part, size_bytes, evicted_ns"
        f" FROM {source}",
        **view.parameters(),
        as_bytes=("part",),
        id=min(body_id, 2**63 - 1),
        start=max(0, start),
        length=length,
    )
    if not rows:
        raise NotFoundError(f"body {body_id}: no such body.")
    part, size_bytes, evicted_ns = rows[0]
    if evicted_ns is not None:
        raise NotFoundError(f"body {body_id}: evicted by retention ({size_bytes} bytes).")
    return bytes(part)


def read_bodies(client: Client, view: View, body_ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield complete bodies in the order of their ids, in queries of bounded size."""
    ids = sorted({each for each in body_ids if 0 < each < 2**63})
    for at in range(0, len(ids), _IDS_PER_QUERY):
        if len(ids) == 1:
            yield from _read_group(client, view, ids)
            return
        source = view.current("bodies", "id IN {ids:Array(Int64)}")
        sizes = client.query(
            f"SELECT id, size_bytes FROM {source} WHERE evicted_ns IS NULL ORDER BY id",
            **view.parameters(),
            ids=ids[at : at + _IDS_PER_QUERY],
        )
        group: list[int] = []
        total = 0
        for body_id, size_bytes in sizes:
            if group and total + size_bytes > _BYTES_PER_QUERY:
                yield from _read_group(client, view, group)
                group, total = [], 0
            group.append(body_id)
            total += size_bytes
        if group:
            yield from _read_group(client, view, group)


def _read_group(client: Client, view: View, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    source = view.current("bodies", "id IN {ids:Array(Int64)}")
    rows = client.query(
        f"SELECT id, data FROM {source} WHERE evicted_ns IS NULL ORDER BY id",
        **view.parameters(),
        as_bytes=("data",),
        ids=list(ids),
    )
    yield from ((body_id, bytes(data)) for body_id, data in rows)
