"""Packs: bodies under 400 bytes, compressed together in shared rows.

Most bodies are shorter than the overhead of a row and its index entry. So the tiny bodies of
a batch are concatenated into packs (the table `sheets`). The bodies of a pack have consecutive
ids, and the first one is the id of the row. An id therefore leads to its pack without an index.

    insert_packs(connection, tenant, first_id, pack_texts(texts, times))
    PackReader(connection).read(body_id)

The one hard fact: a pack is written once and never changed. So the same tiny text in two
batches has two ids. **Loading a run must map equal texts to one id again** (`CanonicalIds`),
because repeated bodies are recognized by their ids.

Elsewhere: longer bodies in inline_bodies.py and body_writer.py; eviction in body_store.py.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

from vestige.errors import StoreError
from vestige.limits import KIB
from vestige.store.compression import COMPRESS_MIN, compress, decompress

TABLES = """
CREATE TABLE sheets (               -- packs: bodies under 400 bytes, with consecutive ids
  id           INTEGER PRIMARY KEY, -- body id of the first text
  tenant       INTEGER NOT NULL,    -- tenants.id
  texts        INTEGER NOT NULL,    -- number of texts
  size_bytes   INTEGER NOT NULL,    -- of all texts
  stored_bytes INTEGER,             -- of data
  first_ns     INTEGER NOT NULL,    -- the oldest record that refers to one of the texts
  last_ns      INTEGER NOT NULL,    -- the newest
  evicted_ns   INTEGER,             -- when retention removed the texts; NULL while they are stored
  codec        INTEGER,             -- as in pieces
  hash         BLOB,                -- of all texts, as in pieces
  ends         BLOB NOT NULL,       -- end offset of each text, 4 bytes each
  times        BLOB,                -- time of the first record that refers to each, 8 bytes each
  keys         BLOB,                -- the first 8 bytes of the SHA-256 of each text
  data         BLOB                 -- the texts, concatenated
);
"""

TINY_MAX = COMPRESS_MIN
"""Bodies of this length or more are stored on their own."""

PACK_BYTES = 64 * KIB
"""Text bytes at which a pack is full. Reading one text decompresses the pack in about 0.1 ms."""

TEXTS_MAX = 4_096
"""Texts in one pack. It bounds the ids between a body and the row of its pack."""

_INSERT = f"INSERT INTO sheets VALUES ({', '.join('?' * 14)})"
_FIND = f"""
SELECT id, texts, evicted_ns, codec, size_bytes, CAST(hash AS BLOB), ends, CAST(data AS BLOB)
FROM sheets WHERE id <= :id AND id > :id - {TEXTS_MAX} ORDER BY id DESC LIMIT 1
"""
_FIND_TIMES = f"""
SELECT id, times FROM sheets WHERE id <= :id AND id > :id - {TEXTS_MAX} ORDER BY id DESC LIMIT 1
"""


NewPack = tuple[int, int, int, int, int, None, int, bytes, bytes, bytes, bytes, bytes]
"""The columns of a row from `texts` on."""


@dataclass(frozen=True, slots=True)
class BodyPack:
    """The columns of a pack that reading needs, still compressed."""

    first: int
    texts: int
    evicted_ns: int | None
    codec: int
    size_bytes: int
    hash: bytes
    ends: bytes
    data: bytes

    def __contains__(self, body_id: int) -> bool:
        return self.first <= body_id < self.first + self.texts

    def find_range(self, body_id: int) -> tuple[int, int]:
        """Return the offsets at which a text begins and ends."""
        ends = _parse_array("I", self.ends)
        at = body_id - self.first
        if (
            len(ends) != self.texts
            or (at and ends[at - 1] > ends[at])
            or ends[at] > self.size_bytes
        ):
            raise StoreError(f"body {body_id}: damaged (its pack has impossible offsets).")
        return ends[at - 1] if at else 0, ends[at]

    def unpack(self, body_id: int) -> bytes:
        """Return all texts, verified by their hash."""
        if not isinstance(self.data, bytes) or self.size_bytes > PACK_BYTES + TINY_MAX:
            raise StoreError(f"body {body_id}: damaged (its pack has an impossible size or type).")
        try:
            texts = decompress(self.codec, self.data, self.size_bytes)
        except StoreError as error:
            raise StoreError(f"body {body_id}: {error}") from error
        if _hash(texts) != self.hash:
            raise StoreError(f"body {body_id}: damaged (its pack does not match its hash).")
        return texts


def pack_texts(texts: Sequence[bytes], times: Sequence[int]) -> list[NewPack]:
    """Pack texts in their order. `times` has the time of each text's first record."""
    packs: list[NewPack] = []
    begin = 0
    for end in _iter_pack_ends(texts):
        members, member_times = texts[begin:end], array("q", times[begin:end])
        joined = b"".join(members)
        codec, data = compress(joined)
        ends = array("I", accumulate(map(len, members)))
        keys = b"".join([sha256(text).digest()[:8] for text in members])
        packs.append(
            (
                len(members),
                len(joined),
                len(data),
                min(member_times),
                max(member_times),
                None,
                codec,
                _hash(joined),
                _render_array(ends),
                _render_array(member_times),
                keys,
                data,
            )
        )
        begin = end
    return packs


def insert_packs(
    connection: sqlite3.Connection, tenant: int, first_id: int, packs: Sequence[NewPack]
) -> int:
    """Insert packs whose texts have consecutive ids from `first_id` on. Return their number."""
    rows = []
    count = 0
    for pack in packs:
        rows.append((first_id + count, tenant, *pack))
        count += pack[0]
    connection.executemany(_INSERT, rows)
    return count


def _iter_pack_ends(texts: Sequence[bytes]) -> Iterator[int]:
    """Yield the index in `texts` at which each pack ends."""
    sizes = array("q", accumulate(map(len, texts)))
    end = before = 0
    while end < len(texts):
        full = bisect_left(sizes, before + PACK_BYTES, end)
        end = min(full + 1, end + TEXTS_MAX, len(texts))
        before = sizes[end - 1]
        yield end


def find_pack(connection: sqlite3.Connection, body_id: int) -> BodyPack | None:
    row = connection.execute(_FIND, {"id": body_id}).fetchone()
    if row is None:
        return None
    pack = BodyPack(*row)
    return pack if body_id in pack else None


class PackReader:
    """Read texts from packs. It caches one pack, because most neighbors share it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pack: BodyPack | None = None
        self._texts = b""

    def read(self, body_id: int) -> bytes | None:
        """Return a text, or None if it is evicted or not in a pack."""
        if self._pack is None or body_id not in self._pack:
            self._pack = None
            pack = find_pack(self._connection, body_id)
            if pack is None or pack.evicted_ns is not None:
                return None
            self._texts = pack.unpack(body_id)
            self._pack = pack
        begin, end = self._pack.find_range(body_id)
        return self._texts[begin:end]


def find_time(connection: sqlite3.Connection, body_id: int) -> int | None:
    """Return the time of the first record that refers to a packed text."""
    first, data = connection.execute(_FIND_TIMES, {"id": body_id}).fetchone() or (0, None)
    times = _parse_array("q", data or b"")
    return times[body_id - first] if body_id - first < len(times) else None


def find_packed(connection: sqlite3.Connection, body_ids: Collection[int]) -> set[int]:
    """Return the ids that are in packs, with equal texts reduced to one id."""
    return set(CanonicalIds(connection).find(body_ids).values())


class CanonicalIds:
    """Map ids of packed texts to the first id that was found with the same text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids_by_key: dict[int, int] = {}

    def find(self, body_ids: Collection[int]) -> dict[int, int]:
        """Return the mapping for ids in packs that are not evicted. Other ids are absent."""
        found: dict[int, int] = {}
        if not body_ids:
            return found
        query = "SELECT id, texts FROM sheets WHERE id <= ? AND id > ?"
        rows = self._connection.execute(query, (max(body_ids), min(body_ids) - TEXTS_MAX))
        packs = rows.fetchall()
        firsts = array("q", [first for first, _ in packs])
        first = end = 0
        keys = array("q")
        ids_by_key = self._ids_by_key
        for body_id in sorted(body_ids):
            if body_id >= end:
                at = bisect_right(firsts, body_id) - 1
                if at < 0 or body_id >= sum(packs[at]):
                    continue
                first, end = firsts[at], sum(packs[at])
                keys = self._read_keys(first)
            if body_id - first < len(keys):
                found[body_id] = ids_by_key.setdefault(keys[body_id - first], body_id)
        return found

    def _read_keys(self, pack_id: int) -> array[int]:
        query = "SELECT keys FROM sheets WHERE id = ?"
        (keys,) = self._connection.execute(query, (pack_id,)).fetchone() or (None,)
        return _parse_array("q", keys or b"")


def _hash(texts: bytes) -> bytes:
    return sha256(texts).digest()[:16]


def _render_array(numbers: array[int]) -> bytes:
    """Return the numbers in little-endian order on every machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _parse_array(typecode: str, data: bytes) -> array[int]:
    numbers = array(typecode)
    numbers.frombytes(data[: len(data) // numbers.itemsize * numbers.itemsize])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
