"""Read bodies back: one or a slice of it, or many at once; every piece verified by its hash.

    reader = BodyReader(connection)
    reader.read(body_id, 0, 200)
    dict(reader.read_many(body_ids))                # whole, in one statement

The one hard fact: another process may evict while we read. A body that goes between two
statements is told as gone, never as damaged, and never in part.

Elsewhere: what a body is made of, store/sqlite/bodies/body_store.py.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from vestige.errors import NotFoundError, StoreError
from vestige.limits import MIB
from vestige.store.sqlite.bodies.compression import decompress
from vestige.store.sqlite.bodies.lru_cache import LruCache
from vestige.store.sqlite.bodies.packed_bodies import OpenSheet, Sheet, find_sheet

PIECE_MAX = MIB
"""A longer piece is cut: reading a slice must not decompress a whole file."""

HASH_BYTES = 16
"""Half a SHA-256: two texts that share one take 2^64 tries, and each row has it twice."""

TEXT_REMEMBERED = 8 * MIB
"""Bytes of pieces just read, and of bodies just written: what comes next shares most of them."""

State = Literal["kept", "evicted"]

_CHAIN = """
WITH RECURSIVE chain (id, parent, piece, end_bytes) AS (
    SELECT id, parent, piece, end_bytes FROM nodes WHERE id = :node
    UNION ALL
    -- Parents are older than children, so a damaged row cannot lead round in circles.
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM chain c JOIN nodes n ON n.id = c.parent
    WHERE n.id < c.id AND n.end_bytes > :start
)
-- As bytes whatever is there: damaged data that passes for text would not even be handed over.
SELECT c.end_bytes, p.size_bytes, p.codec, CAST(p.hash AS BLOB), CAST(p.data AS BLOB)
FROM chain c JOIN pieces p ON p.id = c.piece
WHERE c.end_bytes - p.size_bytes < :end
UNION ALL
SELECT size_bytes, size_bytes, codec, CAST(hash AS BLOB), CAST(data AS BLOB)
FROM bodies WHERE id = :node AND codec IS NOT NULL
"""

# Bodies of one conversation share most of their nodes: each node comes once.
_NODES_OF_BODIES = """
WITH RECURSIVE chain (id, parent, piece, end_bytes) AS (
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM bodies b JOIN nodes n ON n.id = b.id
    WHERE b.id IN (SELECT value FROM json_each(?1)) AND b.evicted_ns IS NULL AND b.codec IS NULL
    UNION
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM chain c JOIN nodes n ON n.id = c.parent
    WHERE n.id < c.id
)
SELECT c.id, c.parent, c.end_bytes, p.size_bytes, p.codec, CAST(p.hash AS BLOB), CAST(p.data AS BLOB)
FROM chain c JOIN pieces p ON p.id = c.piece
UNION ALL
SELECT id, 0, size_bytes, size_bytes, codec, CAST(hash AS BLOB), CAST(data AS BLOB)
FROM bodies WHERE id IN (SELECT value FROM json_each(?1)) AND codec IS NOT NULL
"""

_STORED_BYTES = """
SELECT (SELECT coalesce(sum(stored_bytes), 0) FROM pieces)
     + (SELECT coalesce(sum(stored_bytes), 0) FROM bodies WHERE hash IS NOT NULL)
     + (SELECT coalesce(sum(stored_bytes), 0) FROM sheets)
"""


class BodyReader:
    """The bodies of a store, to be read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._texts: LruCache[bytes, bytes] = LruCache(TEXT_REMEMBERED, len)

    def size(self, body_id: int) -> int:
        """Bytes of a body, kept or evicted."""
        return self._get(body_id)[0]

    def state(self, body_id: int) -> State:
        """Whether the text is still there."""
        return "kept" if self._get(body_id)[1] is None else "evicted"

    def read(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to `end`, cut to what there is; only their pieces are unpacked."""
        size, sheet = self._get_kept(body_id)
        start = max(start, 0)
        end = size if end is None else min(end, size)
        if start >= end:
            return b""
        if sheet is not None:
            return self._on_sheet(body_id, sheet)[start:end]
        query = {"node": body_id, "start": start, "end": end}
        rows = self._db.execute(_CHAIN, query).fetchall()
        rows.reverse()
        at = begin = rows[0][0] - rows[0][1] if rows else size
        texts = []
        for row_end, size_bytes, codec, digest, data in rows:
            if row_end - size_bytes != at:
                break
            texts.append(self._text(body_id, size_bytes, codec, digest, data))
            at = row_end
        if begin > start or at < end:
            self._get_kept(body_id)  # evicted since we looked, by another process?
            raise StoreError(f"body {body_id}: damaged (pieces missing near byte {at}).")
        return b"".join(texts)[start - begin : end - begin]

    def read_many(self, body_ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Whole bodies with their ids. One that is gone or damaged is left out: `read` says why.

        All of it is in memory at once: the caller knows the sizes, and asks for so many.
        """
        rows = self._db.execute(_NODES_OF_BODIES, (msgspec.json.encode(body_ids).decode(),))
        nodes = {row[0]: row[1:] for row in rows}
        sheet = OpenSheet(self._db)
        for body_id in body_ids:
            try:
                text = self._whole(body_id, nodes) if body_id in nodes else sheet.read(body_id)
            except (StoreError, TypeError):
                continue  # a damaged row may hold anything
            if text is not None:
                yield body_id, text

    def _whole(self, body_id: int, nodes: Mapping[int, Sequence[Any]]) -> bytes | None:
        """The pieces from the last to the first, joined; None where one is missing."""
        texts = []
        node, start = body_id, None
        while node in nodes:
            parent, end, size, codec, digest, data = nodes[node]
            if start is not None and end != start:
                return None
            texts.append(self._text(body_id, size, codec, digest, data))
            start = end - size
            if start == 0:
                return texts[0] if len(texts) == 1 else b"".join(reversed(texts))
            # Parents are older than children, so a damaged row cannot lead round in circles.
            if parent >= node:
                return None
            node = parent
        return None

    def stored_bytes(self) -> int:
        """What all texts take, compressed."""
        (total,) = self._db.execute(_STORED_BYTES).fetchone()
        return int(total)

    def _get(self, body_id: int) -> tuple[int, int | None, Sheet | None]:
        """Size, when it was evicted, and the sheet that it stands on, if it does."""
        query = "SELECT size_bytes, evicted_ns FROM bodies WHERE id = ?"
        row: tuple[int, int | None] | None = self._db.execute(query, (body_id,)).fetchone()
        if row is not None:
            return *row, None
        sheet = find_sheet(self._db, body_id)
        if sheet is None:
            raise NotFoundError(f"body {body_id}: no such body in this store.")
        begin, end = sheet.place(body_id)
        return end - begin, sheet.evicted_ns, sheet

    def _get_kept(self, body_id: int) -> tuple[int, Sheet | None]:
        size, evicted_ns, sheet = self._get(body_id)
        if evicted_ns is not None:
            day = datetime.fromtimestamp(evicted_ns // 1_000_000_000, UTC).date()
            raise NotFoundError(
                f"body {body_id}: evicted by retention on {day} ({size} bytes)."
                " Pin a run, or keep more bytes, to keep its bodies."
            )
        return size, sheet

    def _on_sheet(self, body_id: int, sheet: Sheet) -> bytes:
        begin, end = sheet.place(body_id)
        texts = self._texts.get(sheet.hash)
        if texts is None:
            texts = sheet.unpack(body_id)
            self._texts.put(sheet.hash, texts)
        return texts[begin:end]

    def _text(self, body_id: int, size: int, codec: int, digest: bytes, data: bytes) -> bytes:
        """A piece unpacked and verified. By hash, so that what is remembered is never wrong."""
        text = self._texts.get(digest)
        if text is not None:
            return text
        if not (isinstance(data, bytes) and isinstance(size, int) and size <= PIECE_MAX):
            raise StoreError(f"body {body_id}: damaged (a piece has an impossible size or type).")
        try:
            text = decompress(codec, data, size)
        except StoreError as problem:
            raise StoreError(f"body {body_id}: {problem}") from problem
        if hash_of(text) != digest:
            raise StoreError(f"body {body_id}: damaged (a piece does not match its hash).")
        self._texts.put(digest, text)
        return text


def hash_of(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:HASH_BYTES]
