"""Bodies: each message stored once, each body rebuilt byte for byte.

A body is cut into pieces (providers/split.py). A node is a piece that follows
another node, and a body is the node of its last piece. So the bodies of a
conversation are one path, from which each turn branches off with its end:

    head ── user ── ]}                              the body of turn 1
               └─── assistant ── user ── ]}         the body of turn 2

A new turn adds the nodes of its new messages, and needs no memory of the turn
before; the same text ends at the same node, whoever sent it.

    bodies = Bodies(connection)                     # one for each connection
    body_id = bodies.put(data, at_ns)               # inside the caller's transaction
    with bodies.batch():                            # many: their rows are written at its end
        ids = [bodies.put(data, at_ns) for data in datas]
    bodies.read(body_id, 0, 200)

The one hard fact: ids are remembered between calls. They are forgotten when
another connection has written, but **after a rollback the owner of the
transaction must call `clear_caches()`**. Nothing here commits.

Elsewhere: reading, store/body_reader.py; store/compress.py makes pieces small; retention decides what goes.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vestige.limits import KIB, MIB
from vestige.providers.split import split
from vestige.store.body_reader import PIECE_MAX, TEXT_REMEMBERED, BodyReader, hash_of
from vestige.store.compress import compress
from vestige.store.recent import Recent

TABLES = """
-- A stretch of body text, stored once however many bodies contain it.
CREATE TABLE IF NOT EXISTS pieces (
    id           INTEGER PRIMARY KEY,
    hash         BLOB    NOT NULL,  -- first 16 bytes of the SHA-256 of the text
    size_bytes   INTEGER NOT NULL,  -- of the text
    stored_bytes INTEGER NOT NULL,  -- of data
    codec        INTEGER NOT NULL,  -- 0 as it is, 1 zstd
    data         BLOB    NOT NULL
);

-- The size is in the index too, so that the total is summed without touching the data.
CREATE UNIQUE INDEX IF NOT EXISTS pieces_by_hash ON pieces (hash, stored_bytes);

-- A piece at its place in a body: after its parent. Ids grow from parent to child.
CREATE TABLE IF NOT EXISTS nodes (
    id        INTEGER PRIMARY KEY,
    parent    INTEGER NOT NULL,     -- nodes.id of what comes before; 0 at the start of a body
    piece     INTEGER NOT NULL,     -- pieces.id
    end_bytes INTEGER NOT NULL      -- length of the text up to here
);

CREATE UNIQUE INDEX IF NOT EXISTS nodes_by_piece ON nodes (piece, parent);

-- Only asked whether a node has children: most bodies are one piece, and need no entry.
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent) WHERE parent > 0;

-- A text that records refer to. While it is kept, its id is the node of its last piece.
CREATE TABLE IF NOT EXISTS bodies (
    id         INTEGER PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    first_ns   INTEGER NOT NULL,    -- first time that a record referred to it
    last_ns    INTEGER NOT NULL,    -- last time
    evicted_ns INTEGER              -- when retention took the text; NULL while it is kept
);
"""

IDS_REMEMBERED = 32 * KIB
"""Pieces and nodes, some MB together: the messages of hundreds of live conversations."""

HELD_MAX = 16 * MIB
"""Compressed bytes held back before they are written: the collector's memory is bounded."""

WHOLE_MIN = 4 * KIB
"""A shorter body is looked up piece by piece: it has few."""

_PUT_BODY = """
INSERT INTO bodies (id, size_bytes, first_ns, last_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET last_ns = max(last_ns, excluded.last_ns), evicted_ns = NULL
"""

# An evicted body keeps its id, so the id must not be given to another node.
_LAST_NODE = """
SELECT max((SELECT coalesce(max(id), 0) FROM nodes), (SELECT coalesce(max(id), 0) FROM bodies))
"""

_LAST_PIECE = "SELECT coalesce(max(id), 0) FROM pieces"

_IS_NEEDED = """
SELECT EXISTS (SELECT 1 FROM bodies WHERE id = :node AND evicted_ns IS NULL)
    OR EXISTS (SELECT 1 FROM nodes WHERE parent = :node AND parent > 0)
"""

_NODE = """
SELECT parent, piece, stored_bytes FROM nodes LEFT JOIN pieces ON pieces.id = piece
WHERE nodes.id = ?
"""

_DROP_UNUSED_PIECE = """
DELETE FROM pieces WHERE id = :piece AND NOT EXISTS (SELECT 1 FROM nodes WHERE piece = :piece)
"""

_OLDEST = "SELECT id FROM bodies WHERE evicted_ns IS NULL ORDER BY last_ns, id"


@dataclass(frozen=True, slots=True)
class Evicted:
    """What was taken: bodies, and the stored bytes that nothing else needed."""

    count: int
    freed_bytes: int


class Bodies(BodyReader):
    """The bodies of a store, over a connection whose transactions belong to the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._version = -1
        self._last_node: int | None = None
        self._last_piece: int | None = None
        self._batching = False
        self._pieces: Recent[bytes, int] = Recent(IDS_REMEMBERED)
        self._nodes: Recent[tuple[int, bytes], int] = Recent(IDS_REMEMBERED)
        self._wholes: Recent[tuple[int, bytes], tuple[bytes, int]] = Recent(TEXT_REMEMBERED)
        self._drop_held()

    # --- writing --------------------------------------------------------------------------

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold rows back while `put` is called, and write them many at a time."""
        self._begin()
        self._batching = True
        try:
            yield
            self._flush()
        finally:
            self._batching = False

    def put(self, data: bytes, at_ns: int) -> int:
        """Keep a body and return its id: the same id for the same bytes while they are kept."""
        if not self._batching:
            self._begin()
        node = self._put_whole(data)
        known = self._referred.get(node)
        first_ns, last_ns = (at_ns, at_ns) if known is None else known[2:]
        self._referred[node] = (node, len(data), min(first_ns, at_ns), max(last_ns, at_ns))
        if not self._batching or self._held_bytes > HELD_MAX:
            self._flush()
        return node

    def _begin(self) -> None:
        """Another process may have pruned: then an id that we remember may be gone, or reused."""
        assert self._db.in_transaction, "the caller owns the transaction"
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.clear_caches()
            self._version = version

    def clear_caches(self) -> None:
        """Forget every id. To be called after a rollback, which takes rows that we remember."""
        self._last_node = self._last_piece = None
        self._pieces.clear()
        self._nodes.clear()
        self._wholes.clear()
        self._drop_held()

    def _flush(self) -> None:
        """Write what was held back."""
        pieces, nodes = self._held_pieces.values(), self._held_nodes.values()
        try:
            self._db.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?)", pieces)
            self._db.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", nodes)
            self._db.executemany(_PUT_BODY, self._referred.values())
        except sqlite3.Error:
            self.clear_caches()
            raise
        self._drop_held()

    def _drop_held(self) -> None:
        # By what finds them, too: they are not in the tables yet, and a cache may forget them.
        self._held_pieces: dict[bytes, tuple[int, bytes, int, int, int, bytes]] = {}
        self._held_nodes: dict[tuple[int, bytes], tuple[int, int, int, int]] = {}
        self._referred: dict[int, tuple[int, int, int, int]] = {}
        self._held_bytes = 0

    def _put_whole(self, data: bytes) -> int:
        """The node of a body: a retry resends the same bytes, and comparing beats cutting."""
        if len(data) < WHOLE_MIN:
            return self._put_pieces(data)
        key = (len(data), data[-64:])
        found = self._wholes.get(key)
        if found and found[0] == data:
            return found[1]
        node = self._put_pieces(data)
        self._wholes.put(key, (data, node), len(data))
        return node

    def _put_pieces(self, data: bytes) -> int:
        node = end = 0
        branched = False
        for piece in _cut(data):
            end += len(piece)
            digest = hash_of(piece)
            known = None if branched else self._nodes.get((node, digest))
            if known is None:
                known, branched = self._put_node(node, piece, digest, end, branched)
            node = known
        return node

    def _put_node(
        self, parent: int, piece: bytes, digest: bytes, end: int, parent_is_new: bool
    ) -> tuple[int, bool]:
        """The node of a piece after its parent, and whether it is new."""
        if held := self._held_nodes.get((parent, digest)):
            return held[0], False
        piece_id, piece_is_new = self._put_piece(piece, digest)
        if not (parent_is_new or piece_is_new):
            query = "SELECT id FROM nodes WHERE piece = ? AND parent = ?"
            if row := self._db.execute(query, (piece_id, parent)).fetchone():
                self._nodes.put((parent, digest), row[0])
                return row[0], False
        if self._last_node is None:
            (self._last_node,) = self._db.execute(_LAST_NODE).fetchone()
        self._last_node = node = self._last_node + 1
        self._held_nodes[parent, digest] = (node, parent, piece_id, end)
        self._nodes.put((parent, digest), node)
        return node, True

    def _put_piece(self, piece: bytes, digest: bytes) -> tuple[int, bool]:
        """The id of a piece, and whether it is new."""
        known = self._pieces.get(digest)
        if known is not None:
            return known, False
        if held := self._held_pieces.get(digest):
            return held[0], False
        row = self._db.execute("SELECT id FROM pieces WHERE hash = ?", (digest,)).fetchone()
        if row is not None:
            self._pieces.put(digest, row[0])
            return row[0], False
        if self._last_piece is None:
            (self._last_piece,) = self._db.execute(_LAST_PIECE).fetchone()
        self._last_piece = piece_id = self._last_piece + 1
        codec, stored = compress(piece)
        self._held_pieces[digest] = (piece_id, digest, len(piece), len(stored), codec, stored)
        self._held_bytes += len(stored)
        self._pieces.put(digest, piece_id)
        return piece_id, True

    # --- letting go -----------------------------------------------------------------------

    def evict(self, body_ids: Iterable[int], at_ns: int) -> Evicted:
        """Take the text of these bodies. Their rows stay, and say when it went."""
        query = "UPDATE bodies SET evicted_ns = ? WHERE id = ? AND evicted_ns IS NULL"
        return self._let_go(body_ids, query, (at_ns,))

    def forget(self, body_ids: Iterable[int]) -> Evicted:
        """Remove bodies that no record refers to any more, marker and all."""
        return self._let_go(body_ids, "DELETE FROM bodies WHERE id = ?", ())

    def evict_oldest(self, until_bytes: int, protected: Iterable[int], at_ns: int) -> Evicted:
        """Evict by last reference, oldest first, until all pieces take at most `until_bytes`."""
        excess = self.stored_bytes() - until_bytes
        spared = frozenset(protected)
        count = freed = 0
        # An array, not a list: a large store has millions, and 8 bytes each are enough.
        oldest = array("q", (row[0] for row in self._db.execute(_OLDEST)) if excess > 0 else ())
        for body_id in oldest:
            if freed >= excess:
                break
            if body_id not in spared:
                evicted = self.evict((body_id,), at_ns)
                count += evicted.count
                freed += evicted.freed_bytes
        return Evicted(count, freed)

    def _let_go(self, body_ids: Iterable[int], query: str, values: tuple[int, ...]) -> Evicted:
        assert self._db.in_transaction, "the caller owns the transaction"
        count = freed = 0
        for body_id in body_ids:
            if self._db.execute(query, (*values, body_id)).rowcount:
                count += 1
                freed += self._release(body_id)
        self.clear_caches()
        return Evicted(count, freed)

    def _release(self, node: int) -> int:
        """Drop a node that nothing needs, then its parent, and so on; the stored bytes freed.

        So there is never garbage to collect: what a kept body shares has a child or
        a body on the way, and the walk ends there.
        """
        freed = 0
        while not self._db.execute(_IS_NEEDED, {"node": node}).fetchone()[0]:
            row = self._db.execute(_NODE, (node,)).fetchone()
            if row is None:
                break
            parent, piece, stored_bytes = row
            self._db.execute("DELETE FROM nodes WHERE id = ?", (node,))
            if self._db.execute(_DROP_UNUSED_PIECE, {"piece": piece}).rowcount:
                freed += stored_bytes
            node = parent
        return freed


def _cut(data: bytes) -> list[bytes]:
    """Pieces to store: by message, and none longer than PIECE_MAX. An empty body is one."""
    pieces = split(data)
    if len(data) <= PIECE_MAX:
        return pieces
    return [
        piece[at : at + PIECE_MAX] for piece in pieces for at in range(0, len(piece), PIECE_MAX)
    ]
