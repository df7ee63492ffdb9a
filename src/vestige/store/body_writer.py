"""Keep bodies, many at a time: what is there already is found, the rest is written.

    writer = BodyWriter(connection)
    first, second = writer.put_many([(data, at_ns), (other, at_ns)])

A call cuts and hashes all of its bodies, asks for all hashes in a few statements, then writes
each table once: a look at the tables for every piece would be half of the work. A short body that
cannot be cut is one row; the others are nodes and pieces.

The one hard fact: ids are remembered between calls. They are forgotten when another connection
has written, but **after a rollback the owner of the transaction must call `clear_caches()`**.

Elsewhere: what the rows mean, store/bodies.py; where to cut, providers/split.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from vestige.limits import KIB
from vestige.providers.split import split
from vestige.store.body_reader import PIECE_MAX, TEXT_REMEMBERED, BodyReader, hash_of
from vestige.store.compress import compress
from vestige.store.recent import Recent

IDS_REMEMBERED = 32 * KIB
"""Pieces and nodes, some MB together: the messages of hundreds of live conversations."""

WHOLE_MIN = 4 * KIB
"""A shorter body that cannot be cut is one row: a longer row would be dear to touch again."""

ASKED_AT_ONCE = 500
"""Hashes in one statement: SQLite may be built for 999."""

_PUT_BODY = """
INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET last_ns = max(last_ns, excluded.last_ns), evicted_ns = NULL
"""

_ADD_BODY = "INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?, ?)"

_ADD_SHORT = """
INSERT INTO bodies (tenant, id, size_bytes, first_ns, last_ns, stored_bytes, codec, hash, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# One series of numbers, so that a search can tell which text is newer. An evicted body keeps its id.
_LAST_ID = """
SELECT max((SELECT coalesce(max(id), 0) FROM nodes), (SELECT coalesce(max(id), 0) FROM bodies),
           (SELECT coalesce(max(id), 0) FROM pieces))
"""

_FIND_NODE = "SELECT id FROM nodes WHERE piece = ? AND parent = ?"

NodeKey = tuple[int, bytes]
"""The parent, and the hash of the piece that follows it."""


Cut = tuple[list[bytes], list[bytes]]
"""Pieces, and their hashes."""

Blob = bytearray
"""How bytes are given to a statement: for `bytes` Python's sqlite3 looks for an adapter each time."""

Short = tuple[int, int, Blob, Blob]
"""The end of a short body's row: stored size, codec, hash, data."""

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
        self._shorts: Recent[bytes, int] = Recent(IDS_REMEMBERED)
        self._shorts_of = 0
        """The tenant whose short bodies are remembered: mostly there is only one."""
        self._pieces: Recent[bytes, int] = Recent(IDS_REMEMBERED)
        self._nodes: Recent[NodeKey, int] = Recent(IDS_REMEMBERED)
        self._wholes: Recent[WholeKey, tuple[bytes, int]] = Recent(TEXT_REMEMBERED)
        self._drop_new()

    def put(self, data: bytes, at_ns: int, tenant: int = 0) -> int:
        """Keep a body and return its id: the same id for the same bytes while they are kept."""
        return self.put_many([(data, at_ns)], tenant)[0]

    def put_many(self, bodies: Sequence[tuple[bytes, int]], tenant: int = 0) -> list[int]:
        """Keep bodies of one tenant, each with the time of its record; their ids, in order.

        What is new is in memory at once, compressed: the caller bounds how much it gives.
        """
        self._begin()
        self._remember_shorts_of(tenant)
        before = self._last
        try:
            cuts = self._cut_all([data for data, _ in bodies], tenant)
            shorts = {cut for cut in cuts if type(cut) is bytes}
            own = f"bodies WHERE tenant = {tenant:d} AND"
            self._find(own, shorts, self._shorts, self._known_shorts)
            pieces = {digest for cut in cuts if type(cut) is tuple for digest in cut[1]}
            self._find("pieces WHERE", pieces, self._pieces, self._known_pieces)
            ids = [
                self._put(data, cut, tenant) for (data, _), cut in zip(bodies, cuts, strict=True)
            ]
            self._write(_references(bodies, ids, tenant), before)
        except BaseException:
            self.clear_caches()
            raise
        return ids

    def _remember_shorts_of(self, tenant: int) -> None:
        if tenant != self._shorts_of:
            self._shorts.clear()
            self._shorts_of = tenant

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
        self._known_shorts: dict[bytes, int] = {}
        self._new_shorts: dict[int, Short] = {}
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
            if len(data) < WHOLE_MIN:
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

    def _find(
        self,
        rows: str,
        digests: Collection[bytes],
        recent: Recent[bytes, int],
        known: dict[bytes, int],
    ) -> None:
        """Learn the ids of all that are there already."""
        missing = []
        for digest in digests:
            found = recent.get(digest)
            if found is None:
                missing.append(Blob(digest))
            else:
                known[digest] = found
        if not self._last:
            return
        for at in range(0, len(missing), ASKED_AT_ONCE):
            asked = missing[at : at + ASKED_AT_ONCE]
            places = ",".join("?" * len(asked))
            known.update(self._db.execute(f"SELECT hash, id FROM {rows} hash IN ({places})", asked))

    def _put(self, data: bytes, cut: Cut | bytes | int, tenant: int) -> int:
        """The id of a body, found or new."""
        if isinstance(cut, bytes):
            return self._known_shorts.get(cut) or self._add_short(data, cut)
        return cut if isinstance(cut, int) else self._put_pieces(data, *cut, tenant)

    def _add_short(self, data: bytes, digest: bytes) -> int:
        self._last = body_id = self._last + 1
        codec, stored = compress(data)
        self._new_shorts[body_id] = (len(stored), codec, Blob(digest), Blob(stored))
        self._known_shorts[digest] = body_id
        return body_id

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
        if len(data) >= WHOLE_MIN:
            self._wholes.put((tenant, len(data), data[-64:]), (data, node), len(data))
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

    def _write(self, references: Mapping[int, Reference], before: int) -> None:
        """The rows of what is new. A body whose node is new cannot be there."""
        executemany = self._db.executemany
        shorts = self._new_shorts
        executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?)", self._piece_rows)
        executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", self._node_rows)
        executemany(_ADD_SHORT, [(*references[each], *row) for each, row in shorts.items()])
        others = [row for each, row in references.items() if each not in shorts]
        executemany(_ADD_BODY, [row for row in others if row[1] > before])
        executemany(_PUT_BODY, [row for row in others if row[1] <= before])
        self._shorts.update(self._known_shorts)
        self._pieces.update(self._known_pieces)
        self._nodes.update(self._new_nodes)
        self._drop_new()


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


def _references(
    bodies: Sequence[tuple[bytes, int]], ids: Sequence[int], tenant: int
) -> Mapping[int, Reference]:
    """Each body once, with the first and the last time."""
    found: dict[int, Reference] = {}
    for (data, at_ns), node in zip(bodies, ids, strict=True):
        known = found.get(node)
        if known is None:
            found[node] = (tenant, node, len(data), at_ns, at_ns)
        elif not known[3] <= at_ns <= known[4]:
            found[node] = (tenant, node, len(data), min(known[3], at_ns), max(known[4], at_ns))
    return found
