"""Write short bodies of one piece, each as a single row that is unique by its hash.

    inline.begin(tenant)
    body_id = inline.put(data, digest, at_ns, new_id)   # `new_id` is used if the text is new
    replaced = inline.write()                           # provisional ids -> ids in the store

Most texts are new, and looking each one up would cost as much as writing it. So rows are
inserted without a lookup, and SQLite ignores those whose hash exists. Only if it ignored some,
their ids are queried.

Elsewhere: body_writer.py owns the ids, and clears the caches after a rollback.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from vestige.limits import KIB
from vestige.store.compression import COMPRESS_MIN, RAW, compress
from vestige.store.sqlite.bodies.lru_cache import LruCache

SHORT_MAX = 4 * KIB
"""Longer bodies are stored as pieces, because updating the times of a long row is expensive."""

ID_CACHE_MAX = 32 * KIB
"""A few MB of ids: the messages of hundreds of live conversations."""

HASHES_PER_QUERY = 500
"""SQLite may be built with a limit of 999 parameters."""

Blob = bytearray
"""The type of binary parameters: for `bytes`, sqlite3 looks up an adapter each time."""

_INSERT = """
INSERT OR IGNORE INTO bodies
  (tenant, id, size_bytes, first_ns, last_ns, stored_bytes, codec, hash, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOUCH = "UPDATE bodies SET last_ns = max(last_ns, ?) WHERE id = ?"

Row = list[Any]
"""The values of `_INSERT`. A list, because its times change when the text occurs again."""
_ID, _FIRST_NS, _LAST_NS = 1, 3, 4


class InlineBodies:
    """The short bodies of a store, over a connection. The caller owns the transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._tenant = 0
        self._known: LruCache[bytes, int] = LruCache(ID_CACHE_MAX)
        """Ids of the current tenant only: most stores have one tenant."""
        self._drop_new()

    def clear(self) -> None:
        self._known.clear()
        self._drop_new()

    def begin(self, tenant: int) -> None:
        if tenant != self._tenant:
            self._known.clear()
            self._tenant = tenant

    def put(self, data: bytes, digest: bytes, at_ns: int, new_id: int) -> int:
        """Return the id of a text: a known one, or `new_id`."""
        row = self._new.get(digest)
        if row is not None:
            if at_ns > row[_LAST_NS]:
                row[_LAST_NS] = at_ns
            elif at_ns < row[_FIRST_NS]:
                row[_FIRST_NS] = at_ns
            found: int = row[_ID]
            return found
        known = self._known.get(digest)
        if known is not None:
            if at_ns > self._repeated.get(known, 0):
                self._repeated[known] = at_ns
            return known
        codec, stored = (RAW, data) if len(data) < COMPRESS_MIN else compress(data)
        self._new[digest] = [
            self._tenant,
            new_id,
            len(data),
            at_ns,
            at_ns,
            len(stored),
            codec,
            Blob(digest),
            Blob(stored),
        ]
        return new_id

    def write(self) -> Mapping[int, int]:
        """Write the new rows. Return the provisional ids whose texts are already stored."""
        new = self._new
        added = self._db.executemany(_INSERT, new.values()).rowcount if new else 0
        replaced = {} if added == len(new) else self._find_replaced()
        ids = {digest: row[_ID] for digest, row in new.items()}
        if replaced:
            ids = {digest: replaced.get(body_id, body_id) for digest, body_id in ids.items()}
        self._db.executemany(
            _TOUCH, [(at_ns, body_id) for body_id, at_ns in self._repeated.items()]
        )
        self._known.update(ids)
        self._drop_new()
        return replaced

    def _find_replaced(self) -> dict[int, int]:
        """Map provisional ids to the ids of equal stored texts, and record the new references."""
        replaced: dict[int, int] = {}
        digests = list(self._new)
        for at in range(0, len(digests), HASHES_PER_QUERY):
            some = digests[at : at + HASHES_PER_QUERY]
            marks = ",".join("?" * len(some))
            query = f"SELECT hash, id FROM bodies WHERE tenant = ? AND hash IN ({marks})"
            for digest, body_id in self._db.execute(query, (self._tenant, *map(Blob, some))):
                row = self._new[digest]
                if body_id != row[_ID]:
                    replaced[row[_ID]] = body_id
                    self._repeated[body_id] = row[_LAST_NS]
        return replaced

    def _drop_new(self) -> None:
        self._new: dict[bytes, Row] = {}
        self._repeated: dict[int, int] = {}
        """Ids of texts that were already stored, with the latest time of a reference."""
