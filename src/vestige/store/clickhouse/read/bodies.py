"""Read bodies, whole or in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, Final

from vestige.errors import NotFoundError
from vestige.limits import KIB, MIB
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import View

_AHEAD: Final = 32
"""Bodies that are read with one: those of a run have consecutive ids, and share a block."""
_AHEAD_BYTES_MAX: Final = 16 * KIB
"""Longer bodies are not read ahead."""
_IDS_PER_QUERY: Final = 1_000
_BYTES_PER_QUERY: Final = 32 * MIB


def read_body(
    client: Client,
    view: View,
    body_id: int,
    start: int,
    end: int | None,
    cached: dict[int, bytes],
) -> bytes:
    """Return a slice of a body, which the server cuts.

    Add short bodies after it to `cached`, because the next one to be read is likely among them.
    """
    near = f"id >= {{id:Int64}} AND id < {{id:Int64}} + {_AHEAD}"
    short = f"(id = {{id:Int64}} OR size_bytes <= {_AHEAD_BYTES_MAX})"
    source = view.current("bodies", f"{near} AND {short}")
    length = 2**62 if end is None else max(0, end - start)
    rows = client.query(
        "SELECT id, size_bytes, evicted_ns, if(id = {id:Int64},"
        f" substring(data, {{start:Int64}} + 1, {{length:Int64}}), data) AS part FROM {source}"
        " ORDER BY id",
        **view.parameters(),
        as_bytes=("part",),
        id=min(body_id, 2**62),
        start=max(0, start),
        length=length,
    )
    if not rows or rows[0][0] != body_id:
        raise NotFoundError(f"body {body_id}: no such body.")
    _, size_bytes, evicted_ns, part = rows[0]
    if evicted_ns is not None:
        raise NotFoundError(f"body {body_id}: evicted by retention ({size_bytes} bytes).")
    for other, size, evicted, text in rows:
        if evicted is None and len(text) == size <= _AHEAD_BYTES_MAX:
            cached[other] = bytes(text)
    return bytes(part)


def read_bodies(
    client: Client, view: View, body_ids: Sequence[int], cached: dict[int, bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield complete bodies in the order of their ids, in queries of bounded size."""
    ids = sorted({each for each in body_ids if 0 < each < 2**63})
    if len(ids) == 1 and ids[0] not in cached:
        # More of the same run are likely to be read next.
        try:
            yield ids[0], read_body(client, view, ids[0], 0, None, cached)
        except NotFoundError:
            pass
        return
    known = {each: cached[each] for each in ids if each in cached}
    missing = [each for each in ids if each not in known]
    yield from merge(known.items(), _read_missing(client, view, missing))


def _read_missing(client: Client, view: View, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(ids), _IDS_PER_QUERY):
        left = ids[at : at + _IDS_PER_QUERY]
        while left:
            rows = _read_group(client, view, left)
            yield from ((body_id, bytes(data)) for body_id, data in rows)
            if not rows or rows[-1][0] == left[-1]:
                break
            left = [each for each in left if each > rows[-1][0]]


def _read_group(client: Client, view: View, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
    """Return the first of these bodies, as many as one answer may contain, but at least one."""
    source = view.current("bodies", "id IN {ids:Array(Int64)}")
    # Sizes first, so that the texts of the others are not read.
    fitting = (
        "SELECT id FROM (SELECT id, sum(size_bytes) OVER (ORDER BY id) AS total,"
        f" row_number() OVER (ORDER BY id) AS n FROM {source} WHERE evicted_ns IS NULL)"
        f" WHERE total <= {_BYTES_PER_QUERY} OR n = 1"
    )
    where = f"id IN {{ids:Array(Int64)}} AND id IN ({fitting})" if len(ids) > 1 else None
    rows: Sequence[Sequence[Any]] = client.query(
        f"SELECT id, data FROM {view.current('bodies', where) if where else source}"
        " WHERE evicted_ns IS NULL ORDER BY id",
        **view.parameters(),
        as_bytes=("data",),
        ids=list(ids),
    )
    return rows
