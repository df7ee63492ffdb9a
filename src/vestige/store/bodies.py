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

Elsewhere: store/compress.py makes pieces small; retention decides what goes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

from vestige.errors import NotFoundError, StoreError
from vestige.limits import KIB, MIB
from vestige.providers.split import split
from vestige.store.compress import compress, decompress

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

PIECE_MAX = MIB
"""A longer piece is cut: reading a slice must not decompress a whole file."""

HASH_BYTES = 16
"""Half a SHA-256: two texts that share one take 2^64 tries, and each row has it twice."""

IDS_REMEMBERED = 32 * KIB
"""Pieces and nodes, some MB together: the messages of hundreds of live conversations."""

TEXT_REMEMBERED = 8 * MIB
"""Bytes of pieces just read, and of bodies just written: what comes next shares most of them."""

HELD_MAX = 16 * MIB
"""Compressed bytes held back before they are written: the collector's memory is bounded."""

WHOLE_MIN = 4 * KIB
"""A shorter body is looked up piece by piece: it has few."""

State = Literal["kept", "evicted"]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

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
"""

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


class Bodies:
    """The bodies of a store, over a connection whose transactions belong to the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._version = -1
        self._last_node: int | None = None
        self._last_piece: int | None = None
        self._batching = False
        self._pieces: _Recent[bytes, int] = _Recent(IDS_REMEMBERED)
        self._nodes: _Recent[tuple[int, bytes], int] = _Recent(IDS_REMEMBERED)
        self._wholes: _Recent[tuple[int, bytes], tuple[bytes, int]] = _Recent(TEXT_REMEMBERED)
        self._texts: _Recent[bytes, bytes] = _Recent(TEXT_REMEMBERED)
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
            digest = _hash(piece)
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

    # --- reading --------------------------------------------------------------------------

    def size(self, body_id: int) -> int:
        """Bytes of a body, kept or evicted."""
        return self._get(body_id)[0]

    def state(self, body_id: int) -> State:
        """Whether the text is still there."""
        return "kept" if self._get(body_id)[1] is None else "evicted"

    def read(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to `end`, cut to what there is; only their pieces are unpacked."""
        size = self._get_kept(body_id)
        start = max(start, 0)
        end = size if end is None else min(end, size)
        if start >= end:
            return b""
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

    def stored_bytes(self) -> int:
        """What all pieces take, compressed."""
        (total,) = self._db.execute("SELECT coalesce(sum(stored_bytes), 0) FROM pieces").fetchone()
        return int(total)

    def _get(self, body_id: int) -> tuple[int, int | None]:
        """Size, and when it was evicted."""
        query = "SELECT size_bytes, evicted_ns FROM bodies WHERE id = ?"
        row: tuple[int, int | None] | None = self._db.execute(query, (body_id,)).fetchone()
        if row is None:
            raise NotFoundError(f"body {body_id}: no such body in this store.")
        return row

    def _get_kept(self, body_id: int) -> int:
        size, evicted_ns = self._get(body_id)
        if evicted_ns is not None:
            day = datetime.fromtimestamp(evicted_ns // 1_000_000_000, UTC).date()
            raise NotFoundError(
                f"body {body_id}: evicted by retention on {day} ({size} bytes)."
                " Pin a run, or keep more bytes, to keep its bodies."
            )
        return size

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
        if _hash(text) != digest:
            raise StoreError(f"body {body_id}: damaged (a piece does not match its hash).")
        self._texts.put(digest, text, size)
        return text

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


class _Recent(Generic[Key, Value]):
    """What was used lately, up to a weight. Two generations: cheaper than a strict order."""

    def __init__(self, weight_max: int) -> None:
        self._young_max = weight_max // 2
        self.clear()

    def clear(self) -> None:
        self._young: dict[Key, tuple[Value, int]] = {}
        self._old: dict[Key, tuple[Value, int]] = {}
        self._weight = 0

    def get(self, key: Key) -> Value | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> None:
        if weight > self._young_max:
            return
        if self._weight + weight > self._young_max:
            self._old = self._young
            self._young = {}
            self._weight = 0
        self._young[key] = (value, weight)
        self._weight += weight


def _cut(data: bytes) -> list[bytes]:
    """Pieces to store: by message, and none longer than PIECE_MAX. An empty body is one."""
    pieces = split(data)
    if len(data) <= PIECE_MAX:
        return pieces
    return [
        piece[at : at + PIECE_MAX] for piece in pieces for at in range(0, len(piece), PIECE_MAX)
    ]


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:HASH_BYTES]
