"""Read bodies: one, a slice of one, or many at once. Every piece is verified by its hash.

    reader = BodyReader(connection)
    reader.read(body_id, 0, 200)
    dict(reader.read_many(body_ids))                # complete bodies, in one statement

The one hard fact: another process may evict while this one reads. A body that disappears between
two statements is reported as evicted, never as damaged, and is never returned in part.

Elsewhere: how a body is stored, body_store.py.
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
from vestige.store.compression import decompress
from vestige.store.sqlite.bodies.lru_cache import LruCache
from vestige.store.sqlite.bodies.packed_bodies import BodyPack, PackReader, find_pack

PIECE_MAX = MIB
"""Longer pieces are split, so that reading a slice does not decompress a long body."""

HASH_BYTES = 16
"""Half a SHA-256: a collision takes 2^64 tries, and each row stores the hash twice."""

TEXT_CACHE_BYTES = 8 * MIB
"""Cached text of recent pieces and bodies, because the next body shares most of it."""

State = Literal["kept", "evicted"]

_CHAIN = """
WITH RECURSIVE chain (id, parent, piece, end_bytes) AS (
    SELECT id, parent, piece, end_bytes FROM nodes WHERE id = :node
    UNION ALL
    -- Parents are older than children, so a damaged row cannot make a cycle.
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM chain c JOIN nodes n ON n.id = c.parent
    WHERE n.id < c.id AND n.end_bytes > :start
)
-- Cast, because sqlite3 raises on damaged data that SQLite considers to be text.
SELECT c.end_bytes, p.size_bytes, p.codec, CAST(p.hash AS BLOB), CAST(p.data AS BLOB)
FROM chain c JOIN pieces p ON p.id = c.piece
WHERE c.end_bytes - p.size_bytes < :end
UNION ALL
SELECT size_bytes, size_bytes, codec, CAST(hash AS BLOB), CAST(data AS BLOB)
FROM bodies WHERE id = :node AND codec IS NOT NULL
"""

# Bodies of one conversation share most of their nodes. Each node is returned once.
_NODES_OF_BODIES = """
WITH RECURSIVE chain (id, parent, piece, end_bytes) AS (
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM bodies b JOIN nodes n ON n.id = b.id
    WHERE b.id IN (SELECT value FROM json_each(?1)) AND b.evicted_ns IS NULL AND b.codec IS NULL
    UNION
    SELECT n.id, n.parent, n.piece, n.end_bytes FROM chain c JOIN nodes n ON n.id = c.parent
    WHERE n.id < c.id
)
SELECT c.id, c.parent, c.end_bytes, p.size_bytes, p.codec,
    CAST(p.hash AS BLOB), CAST(p.data AS BLOB)
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
    """Read access to the bodies of a store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._texts: LruCache[bytes, bytes] = LruCache(TEXT_CACHE_BYTES, len)

    def size(self, body_id: int) -> int:
        """Return the size of a body, stored or evicted."""
        return self._get(body_id)[0]

    def state(self, body_id: int) -> State:

        return "kept" if self._get(body_id)[1] is None else "evicted"

    def read(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` to `end`, clipped to the size of the body.

        Only the pieces of that range are decompressed.
        """
        size, pack = self._get_stored(body_id)
        start = max(start, 0)
        end = size if end is None else min(end, size)
        if start >= end:
            return b""
        if pack is not None:
            return self._read_packed(body_id, pack)[start:end]
        query = {"node": body_id, "start": start, "end": end}
        rows = self._db.execute(_CHAIN, query).fetchall()
        rows.reverse()
        at = begin = rows[0][0] - rows[0][1] if rows else size
        texts = []
        for row_end, size_bytes, codec, digest, data in rows:
            if row_end - size_bytes != at:
                break
            texts.append(self._decompress(body_id, size_bytes, codec, digest, data))
            at = row_end
        if begin > start or at < end:
            # Raises NotFoundError if another process evicted the body meanwhile.
            self._get_stored(body_id)
            raise StoreError(f"body {body_id}: damaged (pieces missing near byte {at}).")
        return b"".join(texts)[start - begin : end - begin]

    def read_many(self, body_ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield complete bodies with their ids.

        Missing and damaged bodies are left out; `read` raises the reason. All bodies are in
        memory at once, so the caller bounds the total by their sizes.
        """
        rows = self._db.execute(_NODES_OF_BODIES, (msgspec.json.encode(body_ids).decode(),))
        nodes = {row[0]: row[1:] for row in rows}
        packs = PackReader(self._db)
        for body_id in body_ids:
            try:
                text = self._join(body_id, nodes) if body_id in nodes else packs.read(body_id)
            except (StoreError, TypeError):
                continue  # values of a damaged row may have any type
            if text is not None:
                yield body_id, text

    def _join(self, body_id: int, nodes: Mapping[int, Sequence[Any]]) -> bytes | None:
        """Join the pieces of a body, found from last to first. Return None if one is missing."""
        texts = []
        node, start = body_id, None
        while node in nodes:
            parent, end, size, codec, digest, data = nodes[node]
            if start is not None and end != start:
                return None
            texts.append(self._decompress(body_id, size, codec, digest, data))
            start = end - size
            if start == 0:
                return texts[0] if len(texts) == 1 else b"".join(reversed(texts))
            # Parents are older than children, so a damaged row cannot make a cycle.
            if parent >= node:
                return None
            node = parent
        return None

    def stored_bytes(self) -> int:
        """Return the compressed size of all texts."""
        (total,) = self._db.execute(_STORED_BYTES).fetchone()
        return int(total)

    def _get(self, body_id: int) -> tuple[int, int | None, BodyPack | None]:
        """Return the size, the time of eviction if any, and the pack if the body is in one."""
        query = "SELECT size_bytes, evicted_ns FROM bodies WHERE id = ?"
        row: tuple[int, int | None] | None = self._db.execute(query, (body_id,)).fetchone()
        if row is not None:
            return *row, None
        pack = find_pack(self._db, body_id)
        if pack is None:
            raise NotFoundError(f"body {body_id}: no such body in this store.")
        begin, end = pack.find_range(body_id)
        return end - begin, pack.evicted_ns, pack

    def _get_stored(self, body_id: int) -> tuple[int, BodyPack | None]:
        """Return the size and pack of a body. Raise NotFoundError if it is evicted."""
        size, evicted_ns, pack = self._get(body_id)
        if evicted_ns is not None:
            day = datetime.fromtimestamp(evicted_ns // 1_000_000_000, UTC).date()
            raise NotFoundError(
                f"body {body_id}: evicted by retention on {day} ({size} bytes)."
                " Pin a run, or keep more bytes, to keep its bodies."
            )
        return size, pack

    def _read_packed(self, body_id: int, pack: BodyPack) -> bytes:
        begin, end = pack.find_range(body_id)
        texts = self._texts.get(pack.hash)
        if texts is None:
            texts = pack.unpack(body_id)
            self._texts.put(pack.hash, texts)
        return texts[begin:end]

    def _decompress(self, body_id: int, size: int, codec: int, digest: bytes, data: bytes) -> bytes:
        """Decompress and verify a piece. The cache is keyed by hash, so it is never stale."""
        text = self._texts.get(digest)
        if text is not None:
            return text
        if not (isinstance(data, bytes) and isinstance(size, int) and size <= PIECE_MAX):
            raise StoreError(f"body {body_id}: damaged (a piece has an impossible size or type).")
        try:
            text = decompress(codec, data, size)
        except StoreError as error:
            raise StoreError(f"body {body_id}: {error}") from error
        if hash_text(text) != digest:
            raise StoreError(f"body {body_id}: damaged (a piece does not match its hash).")
        self._texts.put(digest, text)
        return text


def hash_text(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:HASH_BYTES]
