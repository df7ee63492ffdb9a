"""Tiny bodies, many to a row: a sheet.

Arguments of a tool, a sentence, a count: most bodies are shorter than what it takes to keep a row
and find it again. So the tiny ones of a batch stand on sheets, one after the other, compressed
together. Their ids count up from the sheet's own, so an id leads to its sheet without a row for each.

    add_sheets(connection, tenant, first_id, make_sheets(texts, times))
    OpenSheet(connection).read(body_id)

The one hard fact: a sheet is written once and never touched again. So the same tiny text in two
batches has two ids. **Whoever loads a run gives equal texts the same one again** (`FirstIds`): what repeats is
told by ids.

Elsewhere: longer bodies in store/sqlite/bodies/inline_bodies.py and store/sqlite/bodies/body_writer.py; what goes, store/sqlite/bodies/body_store.py.
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
from vestige.store.sqlite.bodies.compression import COMPRESS_MIN, compress, decompress

TABLES = """
CREATE TABLE sheets (               -- tiny bodies, many to a row; their ids count up from the row's
  id           INTEGER PRIMARY KEY, -- of the first text
  tenant       INTEGER NOT NULL,    -- tenants.id
  texts        INTEGER NOT NULL,    -- how many
  size_bytes   INTEGER NOT NULL,    -- of all texts
  stored_bytes INTEGER,             -- of data
  first_ns     INTEGER NOT NULL,    -- the oldest record that refers to one
  last_ns      INTEGER NOT NULL,    -- the newest
  evicted_ns   INTEGER,             -- when retention took the texts; NULL while they are kept
  codec        INTEGER,             -- as in pieces
  hash         BLOB,                -- of all texts, as in pieces
  ends         BLOB NOT NULL,       -- where each text ends: 4 bytes each
  times        BLOB,                -- of the first record that refers to each: 8 bytes
  keys         BLOB,                -- the first 8 bytes of the SHA-256 of each
  data         BLOB                 -- the texts, one after the other
);
"""

TINY_MAX = COMPRESS_MIN
"""A text of this length is worth compressing, and finding again, by itself."""

SHEET_BYTES = 64 * KIB
"""Of texts. Reading one unpacks all: a tenth of a millisecond."""

TEXTS_MAX = 4_096
"""On one sheet: the ids to look back over from a text to its sheet."""

_ADD = f"INSERT INTO sheets VALUES ({', '.join('?' * 14)})"
_FIND = f"""
SELECT id, texts, evicted_ns, codec, size_bytes, CAST(hash AS BLOB), ends, CAST(data AS BLOB)
FROM sheets WHERE id <= :id AND id > :id - {TEXTS_MAX} ORDER BY id DESC LIMIT 1
"""


NewSheet = tuple[int, int, int, int, int, None, int, bytes, bytes, bytes, bytes, bytes]
"""The columns of a row from `texts` on."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A row, as far as reading needs it. Not unpacked yet."""

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

    def place(self, body_id: int) -> tuple[int, int]:
        """Where a text begins and ends."""
        ends = _array("I", self.ends)
        at = body_id - self.first
        if (
            len(ends) != self.texts
            or (at and ends[at - 1] > ends[at])
            or ends[at] > self.size_bytes
        ):
            raise StoreError(f"body {body_id}: damaged (its sheet has impossible places).")
        return ends[at - 1] if at else 0, ends[at]

    def unpack(self, body_id: int) -> bytes:
        """All texts, verified."""
        if not isinstance(self.data, bytes) or self.size_bytes > SHEET_BYTES + TINY_MAX:
            raise StoreError(f"body {body_id}: damaged (its sheet has an impossible size or type).")
        try:
            texts = decompress(self.codec, self.data, self.size_bytes)
        except StoreError as problem:
            raise StoreError(f"body {body_id}: {problem}") from problem
        if _hash(texts) != self.hash:
            raise StoreError(f"body {body_id}: damaged (its sheet does not match its hash).")
        return texts


def make_sheets(texts: Sequence[bytes], times: Sequence[int]) -> list[NewSheet]:
    """Sheets with these texts, in their order; and when the first record of each was made. Pure: it may be
    done elsewhere than they are kept."""
    sheets: list[NewSheet] = []
    begin = 0
    for end in _ends(texts):
        some, since = texts[begin:end], array("q", times[begin:end])
        joined = b"".join(some)
        codec, data = compress(joined)
        ends = array("I", accumulate(map(len, some)))
        keys = b"".join([sha256(text).digest()[:8] for text in some])
        sheets.append(
            (
                len(some),
                len(joined),
                len(data),
                min(since),
                max(since),
                None,
                codec,
                _hash(joined),
                _bytes(ends),
                _bytes(since),
                keys,
                data,
            )
        )
        begin = end
    return sheets


def add_sheets(
    connection: sqlite3.Connection, tenant: int, first_id: int, sheets: Sequence[NewSheet]
) -> int:
    """Keep them. The ids of their texts are `first_id` and the next ones; how many there are."""
    rows = []
    count = 0
    for sheet in sheets:
        rows.append((first_id + count, tenant, *sheet))
        count += sheet[0]
    connection.executemany(_ADD, rows)
    return count


def _ends(texts: Sequence[bytes]) -> Iterator[int]:
    """Where each sheet ends, as a place in `texts`."""
    sizes = array("q", accumulate(map(len, texts)))
    end = before = 0
    while end < len(texts):
        full = bisect_left(sizes, before + SHEET_BYTES, end)
        end = min(full + 1, end + TEXTS_MAX, len(texts))
        before = sizes[end - 1]
        yield end


def find_sheet(connection: sqlite3.Connection, body_id: int) -> Sheet | None:
    row = connection.execute(_FIND, {"id": body_id}).fetchone()
    if row is None:
        return None
    sheet = Sheet(*row)
    return sheet if body_id in sheet else None


class OpenSheet:
    """The sheet that was read last: the next text mostly stands on it too."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sheet: Sheet | None = None
        self._texts = b""

    def read(self, body_id: int) -> bytes | None:
        """None: it stands on none, or is gone."""
        if self._sheet is None or body_id not in self._sheet:
            self._sheet = None
            sheet = find_sheet(self._connection, body_id)
            if sheet is None or sheet.evicted_ns is not None:
                return None
            self._texts = sheet.unpack(body_id)
            self._sheet = sheet
        begin, end = self._sheet.place(body_id)
        return self._texts[begin:end]


def find_time(connection: sqlite3.Connection, body_id: int) -> int | None:
    """When the first record that refers to a text was made."""
    query = f"SELECT id, times FROM sheets WHERE id <= ? AND id > ? - {TEXTS_MAX} ORDER BY id DESC LIMIT 1"
    first, times = connection.execute(query, (body_id, body_id)).fetchone() or (0, None)
    known = _array("q", times or b"")
    return known[body_id - first] if body_id - first < len(known) else None


def find_tiny(connection: sqlite3.Connection, body_ids: Collection[int]) -> set[int]:
    """Those of them that stand on sheets; of equal texts the first."""
    return set(FirstIds(connection).find(body_ids).values())


class FirstIds:
    """Ids of texts on sheets, each as the first one that was met with the same text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._met: dict[int, int] = {}
        """By key."""

    def find(self, body_ids: Collection[int]) -> dict[int, int]:
        """Those of them that stand on a sheet which is kept; any other id is its own."""
        found: dict[int, int] = {}
        if not body_ids:
            return found
        query = "SELECT id, texts FROM sheets WHERE id <= ? AND id > ?"
        rows = self._connection.execute(query, (max(body_ids), min(body_ids) - TEXTS_MAX))
        sheets = rows.fetchall()
        firsts = array("q", [first for first, _ in sheets])
        first = end = 0
        keys = array("q")
        met = self._met
        for body_id in sorted(body_ids):
            if body_id >= end:
                at = bisect_right(firsts, body_id) - 1
                if at < 0 or body_id >= sum(sheets[at]):
                    continue
                first, end = firsts[at], sum(sheets[at])
                keys = self._keys(first)
            if body_id - first < len(keys):
                found[body_id] = met.setdefault(keys[body_id - first], body_id)
        return found

    def _keys(self, sheet: int) -> array[int]:
        query = "SELECT keys FROM sheets WHERE id = ?"
        (keys,) = self._connection.execute(query, (sheet,)).fetchone() or (None,)
        return _array("q", keys or b"")


def _hash(texts: bytes) -> bytes:
    return sha256(texts).digest()[:16]


def _bytes(numbers: array[int]) -> bytes:
    """Little endian, whatever this machine is."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _array(kind: str, data: bytes) -> array[int]:
    numbers = array(kind)
    numbers.frombytes(data[: len(data) // numbers.itemsize * numbers.itemsize])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
