"""Bodies that are one row each: short, and nothing to cut. Found again by the hash of their text.

    shorts.begin(tenant)
    body_id = shorts.put(data, digest, at_ns, new_id)   # `new_id` is used if the text is new
    moved = shorts.write()                              # ids that were given, to those that hold

Texts are written without a look at what is there: most are new, and a look at each would cost as much as
writing it. SQLite passes over those whose hash is known; only then is it asked which.

Part of store/sqlite/bodies/body_writer.py, which owns ids and what is forgotten after a rollback.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from vestige.limits import KIB
from vestige.store.sqlite.bodies.compression import COMPRESS_MIN, RAW, compress
from vestige.store.sqlite.bodies.lru_cache import LruCache

SHORT_MAX = 4 * KIB
"""A longer body that cannot be cut is no single row: a long row would be dear to touch again."""

IDS_REMEMBERED = 32 * KIB
"""Some MB: the messages of hundreds of live conversations."""

ASKED_AT_ONCE = 500
"""Hashes in one statement: SQLite may be built for 999."""

Blob = bytearray
"""How bytes are given to a statement: for `bytes` Python's sqlite3 looks for an adapter each time."""

_ADD = """
INSERT OR IGNORE INTO bodies
  (tenant, id, size_bytes, first_ns, last_ns, stored_bytes, codec, hash, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOUCH = "UPDATE bodies SET last_ns = max(last_ns, ?) WHERE id = ?"

Row = list[Any]
"""As `_ADD` has it. A list: when the text comes again, its times are changed."""
_ID, _FIRST_NS, _LAST_NS = 1, 3, 4


class ShortBodies:
    """The short bodies of a store, over a connection whose transactions belong to the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._tenant = 0
        self._known: LruCache[bytes, int] = LruCache(IDS_REMEMBERED)
        """Of one tenant: mostly there is only one."""
        self._drop_new()

    def clear(self) -> None:
        """Forget every id."""
        self._known.clear()
        self._drop_new()

    def begin(self, tenant: int) -> None:
        if tenant != self._tenant:
            self._known.clear()
            self._tenant = tenant

    def put(self, data: bytes, digest: bytes, at_ns: int, new_id: int) -> int:
        """The id of a text: a known one, or `new_id`."""
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
            if at_ns > self._again.get(known, 0):
                self._again[known] = at_ns
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
        """The rows of what is new; ids that were given to texts which were there all the same."""
        new = self._new
        added = self._db.executemany(_ADD, new.values()).rowcount if new else 0
        moved = {} if added == len(new) else self._find_moved()
        ids = {digest: row[_ID] for digest, row in new.items()}
        if moved:
            ids = {digest: moved.get(given, given) for digest, given in ids.items()}
        self._db.executemany(_TOUCH, [(at_ns, found) for found, at_ns in self._again.items()])
        self._known.update(ids)
        self._drop_new()
        return moved

    def _find_moved(self) -> dict[int, int]:
        """Which of the new texts were there already; they were referred to again just now."""
        moved: dict[int, int] = {}
        digests = list(self._new)
        for at in range(0, len(digests), ASKED_AT_ONCE):
            asked = digests[at : at + ASKED_AT_ONCE]
            query = f"SELECT hash, id FROM bodies WHERE tenant = ? AND hash IN ({','.join('?' * len(asked))})"
            for digest, found in self._db.execute(query, (self._tenant, *map(Blob, asked))):
                row = self._new[digest]
                if found != row[_ID]:
                    moved[row[_ID]] = found
                    self._again[found] = row[_LAST_NS]
        return moved

    def _drop_new(self) -> None:
        self._new: dict[bytes, Row] = {}
        self._again: dict[int, int] = {}
        """Texts that were there before, with the latest time of a record that refers to them."""
