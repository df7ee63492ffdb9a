"""Keep bodies, many at a time: what is there already is found, the rest is written.

    writer = BodyWriter(connection)
    first, second = writer.put_many([(data, at_ns), (other, at_ns)])

A call cuts and hashes all of its bodies, asks for the hashes of all pieces in a few statements, then writes
each table once: a look at the tables for every piece would be half of the work. Tiny bodies stand
on sheets (store/sqlite/bodies/packed_bodies.py), a short one that cannot be cut is one row (store/sqlite/bodies/inline_bodies.py); the others are
nodes and pieces.

The one hard fact: ids are remembered between calls. They are forgotten when another connection
has written, but **after a rollback the owner of the transaction must call `clear_caches()`**.

Elsewhere: what the rows mean, store/sqlite/bodies/body_store.py; where to cut, providers/message_split.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from vestige.providers.message_split import split
from vestige.store.sqlite.bodies.body_reader import PIECE_MAX, TEXT_REMEMBERED, BodyReader, hash_of
from vestige.store.sqlite.bodies.compression import compress
from vestige.store.sqlite.bodies.inline_bodies import (
    ASKED_AT_ONCE,
    IDS_REMEMBERED,
    SHORT_MAX,
    Blob,
    ShortBodies,
)
from vestige.store.sqlite.bodies.lru_cache import LruCache
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, NewSheet, add_sheets, make_sheets

_PUT_BODY = """
INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET last_ns = max(last_ns, excluded.last_ns), evicted_ns = NULL
"""

_ADD_BODY = "INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)"

# One series of numbers, so that a search can tell which text is newer. An evicted body keeps its id.
_LAST_ID = """
SELECT max((SELECT coalesce(max(id), 0) FROM nodes), (SELECT coalesce(max(id), 0) FROM bodies),
           (SELECT coalesce(max(id), 0) FROM pieces),
           coalesce((SELECT id + texts - 1 FROM sheets ORDER BY id DESC LIMIT 1), 0))
"""

_FIND_NODE = "SELECT id FROM nodes WHERE piece = ? AND parent = ?"

NodeKey = tuple[int, bytes]
"""The parent, and the hash of the piece that follows it."""


Given = tuple[bytes, int]
"""A body, and the time of its record."""

Cut = tuple[list[bytes], list[bytes]]
"""Pieces, and their hashes."""

Reference = tuple[int, int, int, int, int]
"""A row of bodies: tenant, id, size, first and last time."""

WholeKey = tuple[int, int, bytes]
"""What tells most bodies apart at a glance: tenant, length and end."""


class BodyWriter(BodyReader):
    """The bodies of a store, to be read and added to, over a connection whose transactions belong
    to the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._version = -1
        self._last = 0
        self._shorts = ShortBodies(connection)
        self._pieces: LruCache[bytes, int] = LruCache(IDS_REMEMBERED)
        self._nodes: LruCache[NodeKey, int] = LruCache(IDS_REMEMBERED)
        self._wholes: LruCache[WholeKey, tuple[bytes, int]] = LruCache(TEXT_REMEMBERED, _length)
        self._drop_new()

    def put(self, data: bytes, at_ns: int, tenant: int = 0) -> int:
        """Keep a body and return its id: the same id for the same bytes while they are kept, except
        for tiny ones."""
        return self.put_many([(data, at_ns)], tenant)[0]

    def put_many(self, bodies: Sequence[Given], tenant: int = 0) -> list[int]:
        """Keep bodies of one tenant, each with the time of its record; their ids, in order.

        What is new is in memory at once, compressed: the caller bounds how much it gives.
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

    def _put_tiny(self, bodies: Sequence[Given], tenant: int) -> tuple[list[int], list[int]]:
        """Ids, of the tiny ones for now; and the places of all others. This loop runs for every body
        that there is."""
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
            self._last += add_sheets(self._db, tenant, first, make_sheets(list(known), times))
        return ids, others

    def _put_others(self, bodies: Sequence[Given], tenant: int) -> list[int]:
        self._shorts.begin(tenant)
        before = self._last
        cuts = self._cut_all([data for data, _ in bodies], tenant)
        pieces = {digest for cut in cuts if type(cut) is tuple for digest in cut[1]}
        self._find_pieces(pieces)
        ids, longs = self._give_ids(bodies, cuts, tenant)
        moved = self._write(longs, before)
        return [moved.get(each, each) for each in ids] if moved else ids

    def add_sheets(self, sheets: Sequence[NewSheet], tenant: int = 0) -> int:
        """Keep tiny bodies on sheets that were made elsewhere; the id of the first text."""
        self._begin()
        first = self._last + 1
        self._last += add_sheets(self._db, tenant, first, sheets)
        return first

    def clear_caches(self) -> None:
        """Forget every id. To be called after a rollback, which takes rows that we remember."""
        self._version = -1
        self._shorts.clear()
        self._pieces.clear()
        self._nodes.clear()
        self._wholes.clear()
        self._drop_new()

    def _begin(self) -> None:
        """Another process may have pruned: then an id that we remember may be gone, or reused."""
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

    def _cut_all(self, datas: Sequence[bytes], tenant: int) -> list[Cut | bytes | int]:
        """Each body cut, or its hash if it is short and whole; or its node: a retry resends the
        same bytes, and comparing beats cutting."""
        cuts: list[Cut | bytes | int] = []
        places: dict[WholeKey, int] = {}
        for at, data in enumerate(datas):
            if len(data) < SHORT_MAX:
                pieces = split(data)
                cuts.append(hash_of(data) if len(pieces) == 1 else _hashed(pieces))
                continue
            key = (tenant, len(data), data[-64:])
            found = self._wholes.get(key)
            place = places.setdefault(key, at)
            if found and found[0] == data:
                cuts.append(found[1])
            elif place < at and datas[place] == data:
                cuts.append(cuts[place])
            else:
                cuts.append(_cut(data))
        return cuts

    def _find_pieces(self, digests: Collection[bytes]) -> None:
        """Learn the ids of all that are there already."""
        known, missing = self._known_pieces, []
        for digest in digests:
            found = self._pieces.get(digest)
            if found is None:
                missing.append(Blob(digest))
            else:
                known[digest] = found
        if not self._last:
            return
        for at in range(0, len(missing), ASKED_AT_ONCE):
            asked = missing[at : at + ASKED_AT_ONCE]
            places = ",".join("?" * len(asked))
            query = f"SELECT hash, id FROM pieces WHERE hash IN ({places})"
            known.update(self._db.execute(query, asked))

    def _give_ids(
        self, bodies: Sequence[Given], cuts: Sequence[Cut | bytes | int], tenant: int
    ) -> tuple[list[int], dict[int, Reference]]:
        """The id of each body, found or new; and the rows of those that are not short."""
        ids: list[int] = []
        longs: dict[int, Reference] = {}
        put_short = self._shorts.put
        for (data, at_ns), cut in zip(bodies, cuts, strict=True):
            if isinstance(cut, bytes):
                new = self._last + 1
                found = put_short(data, cut, at_ns, new)
                if found == new:
                    self._last = new
            else:
                found = cut if isinstance(cut, int) else self._put_pieces(data, *cut, tenant)
                known = longs.get(found)
                first_ns = at_ns if known is None else min(known[3], at_ns)
                last_ns = at_ns if known is None else max(known[4], at_ns)
                longs[found] = (tenant, found, len(data), first_ns, last_ns)
            ids.append(found)
        return ids, longs

    def _put_pieces(
        self, data: bytes, pieces: list[bytes], digests: list[bytes], tenant: int
    ) -> int:
        """The node of a body's last piece, found or new."""
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
            self._wholes.put((tenant, len(data), data[-64:]), (data, node))
        return node

    def _put_node(
        self, key: NodeKey, piece: bytes, end: int, parent_is_new: bool
    ) -> tuple[int, bool]:
        """The node of a piece after its parent, and whether it is new."""
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

    def _write(self, longs: Mapping[int, Reference], before: int) -> Mapping[int, int]:
        """The rows of what is new; short bodies that were there under another id than they were given.
        A body whose node is new cannot be there."""
        executemany = self._db.executemany
        executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?)", self._piece_rows)
        executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", self._node_rows)
        executemany(_ADD_BODY, [row for row in longs.values() if row[1] > before])
        executemany(_PUT_BODY, [row for row in longs.values() if row[1] <= before])
        moved = self._shorts.write()
        self._pieces.update(self._known_pieces)
        self._nodes.update(self._new_nodes)
        self._drop_new()
        return moved


def _cut(data: bytes) -> Cut:
    """By message, and no piece longer than PIECE_MAX."""
    pieces = split(data)
    if len(data) > PIECE_MAX:
        pieces = [
            piece[at : at + PIECE_MAX] for piece in pieces for at in range(0, len(piece), PIECE_MAX)
        ]
    return _hashed(pieces)


def _hashed(pieces: list[bytes]) -> Cut:
    return pieces, [hash_of(piece) for piece in pieces]


def _length(whole: tuple[bytes, int]) -> int:
    return len(whole[0])
