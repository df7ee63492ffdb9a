"""Write bodies in batches: look up the pieces that exist, insert the others.

    writer = BodyWriter(connection)
    first_id, second_id = writer.put_many([(first, at_ns), (second, at_ns)])

A call splits and hashes all of its bodies, queries the hashes of all pieces in a few statements,
then writes each table once: one lookup per piece would double the time. Bodies under 400 bytes go
into packs (packed_bodies.py). A short body of one piece is one row (inline_bodies.py). The others
are nodes and pieces.

The one hard fact: ids are cached between calls. The caches are cleared when another connection
has written, but **after a rollback the owner of the transaction must call `clear_caches()`**.

Elsewhere: the meaning of the rows, body_store.py; where to split, providers/message_split.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from vestige.providers.message_split import split
from vestige.store.compression import compress
from vestige.store.sqlite.bodies.body_reader import (
    PIECE_MAX,
    TEXT_CACHE_BYTES,
    BodyReader,
    hash_text,
)
from vestige.store.sqlite.bodies.inline_bodies import (
    HASHES_PER_QUERY,
    ID_CACHE_MAX,
    SHORT_MAX,
    Blob,
    InlineBodies,
)
from vestige.store.sqlite.bodies.lru_cache import LruCache
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, insert_packs, pack_texts

_UPSERT_BODY = """
INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET last_ns = max(last_ns, excluded.last_ns), evicted_ns = NULL
"""

_INSERT_BODY = (
    "INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)"
)

# All tables share one sequence of ids, so a search knows which text is newer. An evicted body
# keeps its id.
_LAST_ID = """
SELECT max((SELECT coalesce(max(id), 0) FROM nodes), (SELECT coalesce(max(id), 0) FROM bodies),
           (SELECT coalesce(max(id), 0) FROM pieces),
           coalesce((SELECT id + texts - 1 FROM sheets ORDER BY id DESC LIMIT 1), 0))
"""

_FIND_NODE = "SELECT id FROM nodes WHERE piece = ? AND parent = ?"

NodeKey = tuple[int, bytes]
"""The parent node, and the hash of the piece that follows it."""


TimedBody = tuple[bytes, int]
"""A body, and the time of its record."""

HashedPieces = tuple[list[bytes], list[bytes]]
"""Pieces, and their hashes."""

BodyRow = tuple[int, int, int, int, int]
"""A row of bodies: tenant, id, size, first and last time."""

RecentKey = tuple[int, int, bytes]
"""Tenant, length and last 64 bytes, which distinguish most bodies."""


class BodyWriter(BodyReader):
    """Read and write access to the bodies of a store. The caller owns the transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._version = -1
        self._last = 0
        self._inline = InlineBodies(connection)
        self._pieces: LruCache[bytes, int] = LruCache(ID_CACHE_MAX)
        self._nodes: LruCache[NodeKey, int] = LruCache(ID_CACHE_MAX)
        self._recent: LruCache[RecentKey, tuple[bytes, int]] = LruCache(
            TEXT_CACHE_BYTES, lambda body: len(body[0])
        )
        self._drop_new()

    def put(self, data: bytes, at_ns: int, tenant: int = 0) -> int:
        """Store a body and return its id.

        Equal bytes get the same id while they are stored, except for packed bodies.
        """
        return self.put_many([(data, at_ns)], tenant)[0]

    def put_many(self, bodies: Sequence[TimedBody], tenant: int = 0) -> list[int]:
        """Store bodies of one tenant, each with the time of its record. Return their ids.

        All new pieces are in memory at once, compressed, so the caller bounds the batch.
        """
        self._begin()
        try:
            ids, others = self._put_tiny(bodies, tenant)
            if others:
                found = self._put_others([bodies[at] for at in others], tenant)
                for at, body_id in zip(others, found, strict=True):
                    ids[at] = body_id
        except BaseException:
            self.clear_caches()
            raise
        return ids

    def _put_tiny(self, bodies: Sequence[TimedBody], tenant: int) -> tuple[list[int], list[int]]:
        """Store the tiny bodies. Return all ids (0 for longer bodies), and where the longer are.

        The loop is hot: it runs for every body.
        """
        ids: list[int] = []
        others: list[int] = []
        known: dict[bytes, int] = {}
        times: list[int] = []
        first = self._last + 1
        for data, at_ns in bodies:
            if len(data) < TINY_MAX:
                body_id = known.get(data)
                if body_id is None:
                    body_id = known[data] = first + len(times)
                    times.append(at_ns)
                ids.append(body_id)
            else:
                others.append(len(ids))
                ids.append(0)
        if known:
            self._last += insert_packs(self._db, tenant, first, pack_texts(list(known), times))
        return ids, others

    def _put_others(self, bodies: Sequence[TimedBody], tenant: int) -> list[int]:
        self._inline.begin(tenant)
        before = self._last
        splits = self._split_all([data for data, _ in bodies], tenant)
        digests = {digest for each in splits if type(each) is tuple for digest in each[1]}
        self._find_pieces(digests)
        ids, long_rows = self._assign_ids(bodies, splits, tenant)
        replaced = self._write(long_rows, before)
        return [replaced.get(each, each) for each in ids] if replaced else ids

    def clear_caches(self) -> None:
        """Clear every cached id. Call it after a rollback, which removes rows with cached ids."""
        self._version = -1
        self._inline.clear()
        self._pieces.clear()
        self._nodes.clear()
        self._recent.clear()
        self._drop_new()

    def _begin(self) -> None:
        """Clear the caches if another process has written: it may have deleted or reused ids."""
        assert self._db.in_transaction, "the caller owns the transaction"
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.clear_caches()
            self._version = version
            (self._last,) = self._db.execute(_LAST_ID).fetchone()

    # --- one call -------------------------------------------------------------------------

    def _drop_new(self) -> None:
        self._known_pieces: dict[bytes, int] = {}
        self._new_nodes: dict[NodeKey, int] = {}
        self._piece_rows: list[tuple[int, Blob, int, int, int, Blob]] = []
        self._node_rows: list[tuple[int, int, int, int]] = []

    def _split_all(self, datas: Sequence[bytes], tenant: int) -> list[HashedPieces | bytes | int]:
        """Return for each body its pieces, its hash if it is short and one piece, or its node.

        The node is known for recent bodies. A retry resends the same bytes, and comparing
        bytes is faster than splitting them.
        """
        splits: list[HashedPieces | bytes | int] = []
        indexes: dict[RecentKey, int] = {}
        for at, data in enumerate(datas):
            if len(data) < SHORT_MAX:
                pieces = split(data)
                splits.append(hash_text(data) if len(pieces) == 1 else _hash_pieces(pieces))
                continue
            key = (tenant, len(data), data[-64:])
            recent = self._recent.get(key)
            index = indexes.setdefault(key, at)
            if recent and recent[0] == data:
                splits.append(recent[1])
            elif index < at and datas[index] == data:
                splits.append(splits[index])
            else:
                splits.append(_split_long(data))
        return splits

    def _find_pieces(self, digests: Collection[bytes]) -> None:
        """Load the ids of the pieces that are already stored."""
        known, missing = self._known_pieces, []
        for digest in digests:
            found = self._pieces.get(digest)
            if found is None:
                missing.append(Blob(digest))
            else:
                known[digest] = found
        if not self._last:
            return
        for at in range(0, len(missing), HASHES_PER_QUERY):
            some = missing[at : at + HASHES_PER_QUERY]
            query = f"SELECT hash, id FROM pieces WHERE hash IN ({','.join('?' * len(some))})"
            known.update(self._db.execute(query, some))

    def _assign_ids(
        self,
        bodies: Sequence[TimedBody],
        splits: Sequence[HashedPieces | bytes | int],
        tenant: int,
    ) -> tuple[list[int], dict[int, BodyRow]]:
        """Return the id of each body, found or new, and the rows of bodies that are not inline."""
        ids: list[int] = []
        long_rows: dict[int, BodyRow] = {}
        put_inline = self._inline.put
        for (data, at_ns), parts in zip(bodies, splits, strict=True):
            if isinstance(parts, bytes):
                new = self._last + 1
                body_id = put_inline(data, parts, at_ns, new)
                if body_id == new:
                    self._last = new
            else:
                if isinstance(parts, int):
                    body_id = parts
                else:
                    body_id = self._put_pieces(data, *parts, tenant)
                known = long_rows.get(body_id)
                first_ns = at_ns if known is None else min(known[3], at_ns)
                last_ns = at_ns if known is None else max(known[4], at_ns)
                long_rows[body_id] = (tenant, body_id, len(data), first_ns, last_ns)
            ids.append(body_id)
        return ids, long_rows

    def _put_pieces(
        self, data: bytes, pieces: list[bytes], digests: list[bytes], tenant: int
    ) -> int:
        """Return the node of a body's last piece, found or new."""
        node, end = -tenant, 0
        branched = False
        for piece, digest in zip(pieces, digests, strict=True):
            end += len(piece)
            key = (node, digest)
            found = None if branched else self._new_nodes.get(key) or self._nodes.get(key)
            if found is None:
                found, branched = self._put_node(key, piece, end, branched)
            node = found
        if len(data) >= SHORT_MAX:
            self._recent.put((tenant, len(data), data[-64:]), (data, node))
        return node

    def _put_node(
        self, key: NodeKey, piece: bytes, end: int, parent_is_new: bool
    ) -> tuple[int, bool]:
        """Return the node of a piece that follows its parent, and whether the node is new."""
        parent, digest = key
        piece_id = self._known_pieces.get(digest)
        if piece_id is None:
            piece_id = self._add_piece(piece, digest)
        elif not parent_is_new:
            row = self._db.execute(_FIND_NODE, (piece_id, parent)).fetchone()
            if row is not None:
                self._nodes.put(key, row[0])
                return row[0], False
        self._last = node = self._last + 1
        self._new_nodes[key] = node
        self._node_rows.append((node, parent, piece_id, end))
        return node, True

    def _add_piece(self, piece: bytes, digest: bytes) -> int:
        self._last = piece_id = self._last + 1
        codec, stored = compress(piece)
        row = (piece_id, Blob(digest), len(piece), len(stored), codec, Blob(stored))
        self._piece_rows.append(row)
        self._known_pieces[digest] = piece_id
        return piece_id

    def _write(self, long_rows: Mapping[int, BodyRow], before: int) -> Mapping[int, int]:
        """Write the new rows. Return the replaced ids of inline bodies.

        Ids above `before` belong to new nodes, so their bodies cannot be stored yet.
        """
        executemany = self._db.executemany
        executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?)", self._piece_rows)
        executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", self._node_rows)
        executemany(_INSERT_BODY, [row for row in long_rows.values() if row[1] > before])
        executemany(_UPSERT_BODY, [row for row in long_rows.values() if row[1] <= before])
        replaced = self._inline.write()
        self._pieces.update(self._known_pieces)
        self._nodes.update(self._new_nodes)
        self._drop_new()
        return replaced


def _split_long(data: bytes) -> HashedPieces:
    """Split a body by message, into pieces of at most PIECE_MAX."""
    pieces = split(data)
    if len(data) > PIECE_MAX:
        pieces = [
            piece[at : at + PIECE_MAX] for piece in pieces for at in range(0, len(piece), PIECE_MAX)
        ]
    return _hash_pieces(pieces)


def _hash_pieces(pieces: list[bytes]) -> HashedPieces:
    return pieces, [hash_text(piece) for piece in pieces]
