"""The bodies of a store: their tables, writing, reading and eviction.

A body is split into pieces (providers/message_split.py). A node is a piece that follows
another node, and a body is the node of its last piece. So the bodies of a
conversation share one path, from which the end of each turn branches off:

    head ── user ── ]}                              the body of turn 1
               └─── assistant ── user ── ]}         the body of turn 2

A new turn adds only the nodes of its new messages. Equal texts end at the same node. Each tenant
has its own root (parent 0 for the default tenant, -2 for tenant 2), so tenants never share a body
id, while equal pieces are still stored once.

Most bodies are short and cannot be split. Each is a single row that contains its text
(inline_bodies.py), and bodies under 400 bytes share rows (packed_bodies.py).

    bodies = Bodies(connection)                     # one for each connection
    body_id = bodies.put(data, at_ns)               # inside the caller's transaction
    ids = bodies.put_many([(data, at_ns), ...])     # half the cost of single calls
    bodies.read(body_id, 0, 200)

The one hard fact: **after a rollback the owner of the transaction must call
`clear_caches()`** (body_writer.py has the reason). Nothing here commits.

Elsewhere: writing, body_writer.py; reading, body_reader.py; the policy of eviction,
store/sqlite/retention.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vestige.store.sqlite.bodies.body_reader import PIECE_MAX
from vestige.store.sqlite.bodies.body_writer import BodyWriter
from vestige.store.sqlite.bodies.packed_bodies import find_pack

TABLES = """
-- A part of body text, stored once even if many bodies contain it.
CREATE TABLE IF NOT EXISTS pieces (
    id           INTEGER PRIMARY KEY,
    hash         BLOB    NOT NULL,  -- first 16 bytes of the SHA-256 of the text
    size_bytes   INTEGER NOT NULL,  -- of the text
    stored_bytes INTEGER NOT NULL,  -- of data
    codec        INTEGER NOT NULL,  -- 0 raw, 1 zstd
    data         BLOB    NOT NULL
);

-- The size is in the index too, so that the total is summed without touching the data.
CREATE UNIQUE INDEX IF NOT EXISTS pieces_by_hash ON pieces (hash, stored_bytes);

-- A piece at its position in a body, after its parent. Ids grow from parent to child.
CREATE TABLE IF NOT EXISTS nodes (
    id        INTEGER PRIMARY KEY,
    parent    INTEGER NOT NULL,     -- nodes.id of the preceding node; 0 at the start of a body
    piece     INTEGER NOT NULL,     -- pieces.id
    end_bytes INTEGER NOT NULL      -- length of the text including this piece
);

CREATE UNIQUE INDEX IF NOT EXISTS nodes_by_piece ON nodes (piece, parent);

-- Used to find children only. Most bodies are one piece and need no entry.
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent) WHERE parent > 0;

-- A text that records refer to. While it is stored, its id is the node of its last piece.
CREATE TABLE IF NOT EXISTS bodies (
    id         INTEGER PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    first_ns   INTEGER NOT NULL,    -- first time that a record referred to it
    last_ns    INTEGER NOT NULL,    -- last time
    evicted_ns INTEGER              -- when retention removed the text; NULL while it is stored
);
"""

ROWS = """
-- A short text of one piece is stored in the row of its body, without node and piece.
ALTER TABLE bodies ADD COLUMN stored_bytes INTEGER; -- of data
ALTER TABLE bodies ADD COLUMN codec INTEGER; -- as in pieces, or NULL: see the node with this id
ALTER TABLE bodies ADD COLUMN hash BLOB; -- as in pieces
ALTER TABLE bodies ADD COLUMN data BLOB; -- the text
CREATE UNIQUE INDEX bodies_by_hash ON bodies (hash, tenant, stored_bytes) WHERE hash IS NOT NULL;
"""
"""A migration after TABLES and tenants. Bodies that are already stored are not converted."""

_EVICT = """
UPDATE bodies SET evicted_ns = ?, stored_bytes = NULL, codec = NULL, hash = NULL, data = NULL
WHERE id = ? AND evicted_ns IS NULL
"""

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

_OLDEST = """
SELECT id, last_ns FROM bodies WHERE evicted_ns IS NULL
UNION ALL SELECT id, last_ns FROM sheets WHERE evicted_ns IS NULL ORDER BY 2, 1
"""

_EVICT_PACK = """
UPDATE sheets SET evicted_ns = ?, stored_bytes = NULL, codec = NULL, hash = NULL, times = NULL,
  keys = NULL, data = NULL
WHERE id = ? AND evicted_ns IS NULL
"""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The number of evicted bodies, and the stored bytes that were freed."""

    count: int
    freed_bytes: int


class Bodies(BodyWriter):
    """The bodies of a store, over a connection. The caller owns the transactions."""

    def evict(self, body_ids: Iterable[int], at_ns: int) -> Evicted:
        """Remove the texts of these bodies, and of all bodies in the same packs.

        Their rows stay as markers, with the time of eviction.
        """
        return self._remove(body_ids, _EVICT, _EVICT_PACK, (at_ns,))

    def delete(self, body_ids: Iterable[int]) -> Evicted:
        """Delete bodies that no record refers to, including their rows."""
        queries = "DELETE FROM bodies WHERE id = ?", "DELETE FROM sheets WHERE id = ?"
        return self._remove(body_ids, *queries, ())

    def find_unused_packs(self, used: Sequence[int]) -> list[int]:
        """Return the packs that contain none of these bodies, which are in ascending order."""
        return [first for first, is_used in self._iter_packs(used) if not is_used]

    def evict_oldest(self, until_bytes: int, protected: Iterable[int], at_ns: int) -> Evicted:
        """Evict the least recently referenced bodies until at most `until_bytes` are stored."""
        excess = self.stored_bytes() - until_bytes
        if excess <= 0:
            return Evicted(0, 0)
        in_use = array("q", sorted(protected))
        spared = {*in_use, *(first for first, is_used in self._iter_packs(in_use) if is_used)}
        count = freed = 0
        # An array, because a large store has millions of bodies and needs 8 bytes for each.
        oldest = array("q", (row[0] for row in self._db.execute(_OLDEST)))
        for body_id in oldest:
            if freed >= excess:
                break
            if body_id not in spared:
                evicted = self.evict((body_id,), at_ns)
                count += evicted.count
                freed += evicted.freed_bytes
        return Evicted(count, freed)

    def _iter_packs(self, used: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Yield the id of each pack, and whether it contains one of these bodies."""
        for first, texts in self._db.execute("SELECT id, texts FROM sheets"):
            at = bisect_left(used, first)
            yield first, at < len(used) and used[at] < first + texts

    def _remove(
        self, body_ids: Iterable[int], body_query: str, pack_query: str, values: tuple[int, ...]
    ) -> Evicted:
        assert self._db.in_transaction, "the caller owns the transaction"
        count = freed = 0
        for body_id in body_ids:
            query = "SELECT stored_bytes FROM bodies WHERE id = ?"
            stored_bytes = self._db.execute(query, (body_id,)).fetchone()
            if stored_bytes is None:
                pack = find_pack(self._db, body_id)
                if pack and self._db.execute(pack_query, (*values, pack.first)).rowcount:
                    count += pack.texts
                    freed += len(pack.data or b"")
            elif self._db.execute(body_query, (*values, body_id)).rowcount:
                count += 1
                freed += stored_bytes[0] or self._release(body_id)
        self.clear_caches()
        return Evicted(count, freed)

    def _release(self, node: int) -> int:
        """Delete a node that nothing refers to, then its parents. Return the bytes freed.

        The walk ends at the first node that a stored body shares, which has another
        child or a body. So unused nodes never accumulate.
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


__all__ = ["PIECE_MAX", "ROWS", "TABLES", "Bodies", "Evicted"]
