"""Bodies: each message stored once, each body rebuilt byte for byte.

A body is cut into pieces (providers/message_split.py). A node is a piece that follows
another node, and a body is the node of its last piece. So the bodies of a
conversation are one path, from which each turn branches off with its end:

    head ── user ── ]}                              the body of turn 1
               └─── assistant ── user ── ]}         the body of turn 2

A new turn adds the nodes of its new messages, and needs no memory of the turn
before; the same text ends at the same node, whoever sent it. Only tenants are kept apart: each
has a root of its own (parent 0 for the default one, -2 for tenant 2), so that no body of one has
the id of another's, while equal pieces are still stored once.

Most bodies are short and cannot be cut: such a one is a single row, with its text in it; and the
tiny ones of a batch stand on sheets, many to a row (store/sqlite/bodies/packed_bodies.py).

    bodies = Bodies(connection)                     # one for each connection
    body_id = bodies.put(data, at_ns)               # inside the caller's transaction
    ids = bodies.put_many([(data, at_ns), ...])     # many at once cost half as much
    bodies.read(body_id, 0, 200)

The one hard fact: **after a rollback the owner of the transaction must call
`clear_caches()`** (store/sqlite/bodies/body_writer.py says why). Nothing here commits.

Elsewhere: writing, store/sqlite/bodies/body_writer.py; reading, store/sqlite/bodies/body_reader.py; store/sqlite/bodies/compression.py makes
pieces small; retention decides what goes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vestige.store.sqlite.bodies.body_reader import PIECE_MAX
from vestige.store.sqlite.bodies.body_writer import BodyWriter
from vestige.store.sqlite.bodies.packed_bodies import find_sheet

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

ROWS = """
-- A short text in one piece stands in its body's own row, without node and piece. There: as in pieces.
ALTER TABLE bodies ADD COLUMN stored_bytes INTEGER; -- of data
ALTER TABLE bodies ADD COLUMN codec INTEGER; -- NULL: the text is that of the node with this id
ALTER TABLE bodies ADD COLUMN hash BLOB; -- as in pieces
ALTER TABLE bodies ADD COLUMN data BLOB; -- the text
CREATE UNIQUE INDEX bodies_by_hash ON bodies (hash, tenant, stored_bytes) WHERE hash IS NOT NULL;
"""
"""A later step than TABLES and tenants. What was stored before stays as it is."""

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

_FORGET_SHEET = "DELETE FROM sheets WHERE id = ?"

_EVICT_SHEET = """
UPDATE sheets SET evicted_ns = ?, stored_bytes = NULL, codec = NULL, hash = NULL, times = NULL,
  keys = NULL, data = NULL
WHERE id = ? AND evicted_ns IS NULL
"""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What was taken: bodies, and the stored bytes that nothing else needed."""

    count: int
    freed_bytes: int


class Bodies(BodyWriter):
    """The bodies of a store, over a connection whose transactions belong to the caller."""

    def evict(self, body_ids: Iterable[int], at_ns: int) -> Evicted:
        """Take the text of these bodies, and of those on a sheet with one. Their rows stay, and say
        when it went."""
        return self._let_go(body_ids, _EVICT, _EVICT_SHEET, (at_ns,))

    def forget(self, body_ids: Iterable[int]) -> Evicted:
        """Remove bodies that no record refers to any more, marker and all."""
        return self._let_go(body_ids, "DELETE FROM bodies WHERE id = ?", _FORGET_SHEET, ())

    def find_unused_sheets(self, used: Sequence[int]) -> list[int]:
        """Sheets of which none of these bodies, in ascending order, stands on."""
        return [first for first, is_used in self._sheets_used(used) if not is_used]

    def evict_oldest(self, until_bytes: int, protected: Iterable[int], at_ns: int) -> Evicted:
        """Evict by last reference, oldest first, until all pieces take at most `until_bytes`."""
        excess = self.stored_bytes() - until_bytes
        if excess <= 0:
            return Evicted(0, 0)
        given = array("q", sorted(protected))
        spared = {*given, *(first for first, is_used in self._sheets_used(given) if is_used)}
        count = freed = 0
        # An array, not a list: a large store has millions, and 8 bytes each are enough.
        oldest = array("q", (row[0] for row in self._db.execute(_OLDEST)))
        for body_id in oldest:
            if freed >= excess:
                break
            if body_id not in spared:
                evicted = self.evict((body_id,), at_ns)
                count += evicted.count
                freed += evicted.freed_bytes
        return Evicted(count, freed)

    def _sheets_used(self, used: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Each sheet, and whether one of these bodies stands on it."""
        for first, texts in self._db.execute("SELECT id, texts FROM sheets"):
            at = bisect_left(used, first)
            yield first, at < len(used) and used[at] < first + texts

    def _let_go(
        self, body_ids: Iterable[int], query: str, sheet_query: str, values: tuple[int, ...]
    ) -> Evicted:
        assert self._db.in_transaction, "the caller owns the transaction"
        count = freed = 0
        for body_id in body_ids:
            own = self._db.execute("SELECT stored_bytes FROM bodies WHERE id = ?", (body_id,))
            stored_bytes = own.fetchone()
            if stored_bytes is None:
                sheet = find_sheet(self._db, body_id)
                if (
                    sheet is not None
                    and self._db.execute(sheet_query, (*values, sheet.first)).rowcount
                ):
                    count += sheet.texts
                    freed += len(sheet.data or b"")
            elif self._db.execute(query, (*values, body_id)).rowcount:
                count += 1
                freed += stored_bytes[0] or self._release(body_id)
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


__all__ = ["PIECE_MAX", "ROWS", "TABLES", "Bodies", "Evicted"]
