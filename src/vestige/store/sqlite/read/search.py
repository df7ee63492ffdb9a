"""Search the attributes, log messages and bodies of a store for a text.

Text is searched in the deduplicated pieces and short bodies, each once. A hit then refers to the
first body and span that contain it. So a message that a hundred requests repeat is one hit, and so
is a tiny text in many packs. Text across two pieces cannot be found: across two messages, or across
each MiB of a longer one.

A search may take long, so it reads row ids in steps: newest first in a store, oldest first in
a run. It stops at a limit of rows or bytes, with a cursor (`bodies:4711`) that stays valid while
the store grows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.limits import MIB
from vestige.record.redaction.stream_redaction import spell
from vestige.store.compression import decompress
from vestige.store.protocol import Hit, SearchQuery, SearchResult, SpanRef
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, PackReader, find_packed, find_time
from vestige.store.sqlite.read.span_lookup import SPAN_REF, to_span_ref
from vestige.store.text_search import collect_hits

AROUND = 60
"""Characters shown on each side of a match."""

MATCH_MAX = 80
"""Characters shown of a match."""

SEARCH_ROWS_MAX = 400_000
"""Rows of a search in a store, which takes a few 100 ms. It is a count and not a time, so that
equal searches give equal results."""

SEARCH_BYTES_MAX = 256 * MIB
"""Uncompressed text of a search in one run."""

_ROWS_PER_PIECE = 20
_BYTES_PER_ROW = 512
"""A piece of a body counts as 20 rows, and as one more for each 512 bytes."""

_ROWS_PER_STEP = 20_000
_PIECES_PER_STEP = 64
_OWNERS_MAX = 200
"""Bodies for which an owner is searched."""


def search(
    connection: sqlite3.Connection, query: SearchQuery, after: str | None, limit: int
) -> SearchResult:
    """Return up to `limit` hits in a fixed order, and a cursor if the search is not complete."""
    run = None
    if query.run_id is not None:
        (run,) = connection.execute(
            "SELECT id FROM runs WHERE run_id = ?", (query.run_id,)
        ).fetchone()
    scan = _Scan(connection, query, run)
    return collect_hits(scan, query, after, limit)


@dataclass(slots=True)
class _Scan:
    """A running search. The iterators yield a cursor and a hit, or None between two steps."""

    connection: sqlite3.Connection
    query: SearchQuery
    run: int | None
    seen_bytes: int = 0
    seen_rows: int = 0
    """Counted only in a search of the store. A search in one run is limited by its bytes."""
    bodies_of_run: frozenset[int] | None = None
    reported: set[str] = field(default_factory=set)
    """Tiny texts that are already a hit."""

    def is_over(self) -> bool:
        return self.seen_bytes > SEARCH_BYTES_MAX or self.seen_rows > SEARCH_ROWS_MAX

    def format_limit(self) -> str:
        if self.seen_bytes > SEARCH_BYTES_MAX:
            return f"{SEARCH_BYTES_MAX // MIB} MiB searched"
        return "only the newest part of the store was searched"

    # --- attributes and logs --------------------------------------------------------------

    def iter_rows(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        is_attrs = part == "attrs"
        template = _ATTRS if is_attrs else _LOG_TEXTS
        prefilter, literals = _build_prefilter(
            self.query, ("name" if is_attrs else "message", "attributes")
        )
        for where, values, end in self._iter_steps("spans" if is_attrs else "logs", last):
            sql = template.format(where.format(prefilter))
            for row in self.connection.execute(sql, (*values, *literals)):
                match = self.query.pattern.search(row[6])
                if match is not None:
                    cursor = f"{part}:{row[7]}"
                    name = "attrs" if is_attrs else "log"
                    yield cursor, _hit(cursor, to_span_ref(row), name, row[6], match, None, 1, 0)
            self.seen_rows += 0 if self.run is not None else values[1] - values[0]
            yield f"{part}:{end}", None

    def _iter_steps(
        self, table: str, last: int | None
    ) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """Yield SQL conditions that read the rows in order, in steps."""
        if self.run is not None:
            order = "t.run = ? AND t.id > ?{} ORDER BY t.id"
            (end,) = self.connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
            yield order, (self.run, last or 0), end
            return
        (top,) = self.connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        top = top if last is None else min(top, last - 1)
        while top > 0:
            low = max(0, top - _ROWS_PER_STEP)
            yield "t.id > ? AND t.id <= ?{} ORDER BY t.id DESC", (low, top), low + 1
            top = low

    # --- bodies ---------------------------------------------------------------------------

    def iter_bodies(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        if self.run is not None:
            rows = self.connection.execute(_BODIES_OF_RUN, {"run": self.run})
            self.bodies_of_run = frozenset(row[0] for row in rows if row[0] is not None)
        packs = PackReader(self.connection)
        for ids in self._iter_piece_steps(last):
            marks = ",".join("?" * len(ids))
            rows = self.connection.execute(_TEXTS.format(marks), (*ids, *ids))
            stored = {row[0]: row[1:] for row in rows}
            for piece in ids:
                is_tiny = piece not in stored
                if is_tiny:
                    raw = packs.read(piece)
                    if raw is None:
                        continue
                else:
                    codec, size, data = stored[piece]
                    raw = decompress(codec, data, size)
                self.seen_bytes += len(raw)
                if self.run is None:
                    self.seen_rows += _ROWS_PER_PIECE + len(raw) // _BYTES_PER_ROW
                text = raw.decode(errors="surrogateescape")
                matches = self.query.pattern.finditer(text)
                match = next(matches, None)
                if match is None and (assembled := spell(raw)):
                    text, is_assembled = "\n".join(assembled), True
                    self.seen_bytes += len(raw)
                    matches = self.query.pattern.finditer(text)
                    match = next(matches, None)
                else:
                    is_assembled = False
                if match is None or (is_tiny and text in self.reported):
                    continue
                cursor = f"{part}:{piece}"
                count = 1 + sum(1 for _ in matches)
                hit = self._find_hit(cursor, piece, text, match, count, is_assembled)
                if hit is not None:
                    if is_tiny:
                        self.reported.add(text)
                    yield cursor, hit
            yield f"{part}:{ids[-1]}", None

    def _iter_piece_steps(self, last: int | None) -> Iterator[list[int]]:
        """Yield the ids of pieces, inline and packed bodies in order, in steps."""
        if self.run is not None:
            rows = self.connection.execute(_PIECES_OF_RUN, {"run": self.run, "last": last or 0})
            tiny_rows = self.connection.execute(_TINY_OF_RUN, {"run": self.run})
            tiny = find_packed(self.connection, [row[0] for row in tiny_rows])
            ids = sorted(
                (*(row[0] for row in rows), *(each for each in tiny if each > (last or 0)))
            )
            for at in range(0, len(ids), _PIECES_PER_STEP):
                yield ids[at : at + _PIECES_PER_STEP]
            return
        top = 2**62 if last is None else last
        while True:
            values = {"top": top, "count": _PIECES_PER_STEP}
            found = self.connection.execute(_NEWEST_TEXTS, values).fetchall()
            if not found:
                return
            newest = [
                body_id
                for first, texts in found
                for body_id in range(min(first + texts, top) - 1, first - 1, -1)
            ]
            for at in range(0, len(newest), _PIECES_PER_STEP):
                yield newest[at : at + _PIECES_PER_STEP]
            top = found[-1][0]

    def _find_hit(
        self, cursor: str, piece: int, text: str, match: Any, count: int, is_assembled: bool
    ) -> Hit | None:
        """Return the hit for the first body with a piece, and the first record with the body.

        `is_assembled`: the text was joined from the events of a stream, so it has no offset.
        """
        rows = self.connection.execute(_BODIES_OF_PIECE, (piece,)).fetchall()
        if not rows and (at_ns := find_time(self.connection, piece)) is not None:
            rows = [(piece, at_ns, at_ns, 0)]
        bodies = rows
        if self.bodies_of_run is not None:
            bodies = [row for row in rows if row[0] in self.bodies_of_run]
        for body, first_ns, last_ns, start in bodies[:_OWNERS_MAX]:
            # Retention may have deleted the first run with this body, but not the last one.
            owner = self._find_owner(body, first_ns) or self._find_owner(body, last_ns)
            if owner is not None:
                ref, part = owner
                before = text[: match.start()].encode(errors="surrogateescape")
                at = None if is_assembled else start + len(before)
                return _hit(cursor, ref, part, text, match, at, count, len(rows))
        return None

    def _find_owner(self, body: int, at_ns: int) -> tuple[SpanRef, str] | None:
        """Return the span or log with a body, found by a time of reference for lack of an index."""
        if self.run is not None:
            runs = "s.run = :run"
        else:
            runs = "s.run IN (SELECT id FROM runs WHERE started_ns <= :at AND last_ns >= :at)"
        values = {"run": self.run, "at": at_ns, "body": body}
        row = self.connection.execute(_OWNER_SPAN.format(runs), values).fetchone()
        if row is not None:
            return to_span_ref(row), "input" if row[6] == body else "output"
        row = self.connection.execute(_OWNER_LOG.format(runs), values).fetchone()
        return (to_span_ref(row), "log body") if row is not None else None


def _build_prefilter(query: SearchQuery, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return an SQL condition, and its values, that skips rows that cannot match the pattern."""
    if not query.literals:
        return "", []
    if query.ignore_case:
        test = "t.{} LIKE ? ESCAPE '\\'"
        values = [f"%{_LIKE_SPECIAL.sub(_ESCAPED, literal)}%" for literal in query.literals]
    else:
        test, values = "instr(t.{}, ?) > 0", list(query.literals)
    tests = [test.format(column) for column in columns for _ in values]
    return f" AND ({' OR '.join(tests)})", values * len(columns)


_LIKE_SPECIAL = re.compile(r"[%_\\]")
_ESCAPED = r"\\\g<0>"


def _hit(
    cursor: str,
    span_ref: SpanRef,
    part: str,
    text: str,
    match: Any,
    at: int | None,
    count: int,
    bodies: int,
) -> Hit:
    start, end = match.span()
    return Hit(
        cursor,
        span_ref,
        part,
        text[max(0, start - AROUND) : start],
        text[start : min(end, start + MATCH_MAX)],
        text[end : end + AROUND],
        at,
        count,
        bodies,
    )


_ATTRS = """
SELECT r.run_id, t.span_id, r.id run, t.number, t.type, t.name,
  t.name || ' ' || coalesce(t.attributes, '') text, t.id
FROM spans t JOIN runs r ON r.id = t.run WHERE {}
"""
_LOG_TEXTS = """
SELECT r.run_id, t.span_id, r.id run, s.number, s.type, coalesce(s.name, r.name) name,
  t.message || ' ' || coalesce(t.attributes, '') text, t.id
FROM logs t JOIN runs r ON r.id = t.run
LEFT JOIN spans s ON s.span_id = t.span_id AND s.run = t.run WHERE {}
"""
_BODIES_OF_RUN = """
    SELECT input_body FROM spans WHERE run = :run UNION
    SELECT output_body FROM spans WHERE run = :run UNION
    SELECT body FROM logs WHERE run = :run"""
_TINY_OF_RUN = f"""
    SELECT input_body FROM spans
    WHERE run = :run AND input_bytes < {TINY_MAX} AND input_body IS NOT NULL
    UNION SELECT output_body FROM spans
    WHERE run = :run AND output_bytes < {TINY_MAX} AND output_body IS NOT NULL
    UNION SELECT body FROM logs
    WHERE run = :run AND body_bytes < {TINY_MAX} AND body IS NOT NULL"""
_PIECES_OF_RUN = f"""
WITH RECURSIVE chain (id, parent, piece) AS (
  SELECT id, parent, piece FROM nodes WHERE id IN ({_BODIES_OF_RUN})
  UNION
  SELECT n.id, n.parent, n.piece FROM chain c JOIN nodes n ON n.id = c.parent WHERE n.id < c.id
)
SELECT piece FROM chain WHERE piece > :last
UNION SELECT id FROM bodies WHERE codec IS NOT NULL AND id > :last AND id IN ({_BODIES_OF_RUN})
ORDER BY 1
"""
_NEWEST_TEXTS = """
SELECT id, 1 FROM pieces WHERE id < :top
UNION ALL SELECT id, 1 FROM bodies WHERE id < :top AND codec IS NOT NULL
UNION ALL SELECT id, texts FROM sheets WHERE id < :top AND evicted_ns IS NULL
ORDER BY id DESC LIMIT :count
"""
_TEXTS = """
SELECT id, codec, size_bytes, data FROM pieces WHERE id IN ({0})
UNION ALL SELECT id, codec, size_bytes, data FROM bodies WHERE id IN ({0}) AND codec IS NOT NULL
"""
_BODIES_OF_PIECE = """
WITH RECURSIVE down (id, start) AS (
  SELECT n.id, n.end_bytes - p.size_bytes FROM nodes n JOIN pieces p ON p.id = n.piece
  WHERE n.piece = ?1
  UNION
  SELECT n.id, d.start FROM down d JOIN nodes n ON n.parent = d.id AND n.parent > 0
)
SELECT b.id, b.first_ns, b.last_ns, min(d.start) FROM down d JOIN bodies b ON b.id = d.id
WHERE b.evicted_ns IS NULL GROUP BY b.id
UNION ALL SELECT id, first_ns, last_ns, 0 FROM bodies WHERE id = ?1 AND codec IS NOT NULL
ORDER BY 2, 1
"""
_OWNER_SPAN = f"""
SELECT {SPAN_REF}, s.input_body FROM spans s JOIN runs r ON r.id = s.run
WHERE {{}} AND (s.input_body = :body OR s.output_body = :body) ORDER BY s.id LIMIT 1
"""
_OWNER_LOG = """
SELECT r.run_id, t.span_id, r.id, t.number, t.type, coalesce(t.name, r.name)
FROM logs s JOIN runs r ON r.id = s.run LEFT JOIN spans t ON t.span_id = s.span_id AND t.run = s.run
WHERE {} AND s.body = :body ORDER BY s.id LIMIT 1
"""
