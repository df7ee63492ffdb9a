"""Search a store for ids, attribute values and text; read and store findings.

Nothing here writes except `store_findings`, in the caller's transaction. Text is searched in the
deduplicated pieces and short bodies, each once. A hit then refers to the first body and span
that contain it. So a message that a hundred requests repeat is one hit, and so is a tiny text in
many packs. Text across two pieces cannot be found: across two messages, or across each MiB of a
longer one.

A search may take long, so it reads row ids in steps: newest first in a store, oldest first in
a run. It stops at a limit of rows or bytes, with a cursor (`bodies:4711`) that stays valid while
the store grows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vestige.errors import UsageError
from vestige.limits import MIB
from vestige.record.finding import Finding
from vestige.record.redaction.stream_redaction import spell
from vestige.record.run import RunInfo
from vestige.store.cancellation import check_cancelled
from vestige.store.compression import decompress
from vestige.store.protocol import CheckResult, Hit, SearchQuery, SearchResult, SpanRef
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, PackReader, find_packed, find_time

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

PREFIX_MIN = 4
"""Shorter prefixes of span ids match too many spans."""

_ROWS_PER_STEP = 20_000
_PIECES_PER_STEP = 64
_OWNERS_MAX = 200
"""Bodies for which an owner is searched."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_finding = msgspec.json.Decoder(Finding).decode

_SPAN_REF = "r.run_id, s.span_id, r.id, s.number, s.type, s.name"


def _span_ref(row: Sequence[Any]) -> SpanRef:
    run_id, span_id, run, number, span_type, name = row[:6]
    if span_id is None or number is None:
        return SpanRef(run_id, None, f"r{run}", "run", name or "?")
    return SpanRef(run_id, span_id, f"r{run}.s{number}", span_type, name)


# --- ids ------------------------------------------------------------------------------------


def find_spans(connection: sqlite3.Connection, text: str) -> list[SpanRef]:
    text = text.strip().lower()
    run, dot, number = text.partition(".s")
    values: tuple[int | str, ...]
    if dot and run[:1] == "r" and run[1:].isdecimal() and number.isdecimal():
        where, values = "s.run = ? AND s.number = ?", (int(run[1:][:18]), int(number[:18]))
    elif len(text) >= PREFIX_MIN:
        where, values = "s.span_id >= ? AND s.span_id < ?", (text, text + "\U0010ffff")
    else:
        return []
    rows = connection.execute(
        # Spans are indexed by run, then by id: all runs are looked through, not all spans.
        f"SELECT {_SPAN_REF} FROM runs r CROSS JOIN spans s ON s.run = r.id WHERE {where}"
        " ORDER BY s.id LIMIT 50",
        values,
    )
    found = [_span_ref(row) for row in rows]
    return [ref for ref in found if ref.span_id == text] or found


def find_attribute(connection: sqlite3.Connection, value: str, limit: int) -> list[SpanRef]:
    """Return spans with exactly this value of any attribute, newest first.

    A model call has the ids of its tool calls as attributes (`tool_call.0.id`). It is left out
    if the span of the tool call itself is found.
    """
    text = msgspec.json.encode(value).decode()
    forms = (value, text) if value.isdecimal() else (text,)
    found: dict[tuple[str, str | None], SpanRef] = {}
    callers: set[tuple[str, str | None]] = set()
    for table in ("spans", "logs"):
        for row in connection.execute(
            _ATTRIBUTE[table].format(" OR ".join([_HAS] * len(forms))), forms
        ):
            ref = _span_ref(row)
            keys = [key for key, each in _decode(row[6]).items() if str(each) == value]
            if keys:
                found.setdefault((ref.run_id, ref.span_id), ref)
                if all(key.startswith(_TOOL_CALL) for key in keys):
                    callers.add((ref.run_id, ref.span_id))
            if len(found) >= limit:
                break
    if len(callers) < len(found):
        found = {key: ref for key, ref in found.items() if key not in callers}
    return list(found.values())


_TOOL_CALL = "tool_call."
_HAS = "instr(x.attributes, ?) > 0"
_ATTRIBUTE = {
    "spans": "SELECT r.run_id, x.span_id, r.id, x.number, x.type, x.name, x.attributes"
    " FROM spans x JOIN runs r ON r.id = x.run WHERE {} ORDER BY x.id DESC",
    "logs": "SELECT r.run_id, x.span_id, r.id, s.number, s.type, coalesce(s.name, r.name),"
    " x.attributes FROM logs x JOIN runs r ON r.id = x.run"
    " LEFT JOIN spans s ON s.span_id = x.span_id AND s.run = x.run WHERE {} ORDER BY x.id DESC",
}


def links_to(
    connection: sqlite3.Connection, run_id: str, span_id: str
) -> list[tuple[SpanRef, str | None]]:
    rows = connection.execute(
        f"SELECT {_SPAN_REF}, l.reason FROM links l JOIN runs r ON r.id = l.run"
        " JOIN spans s ON s.run = l.run AND s.span_id = l.span_id"
        " WHERE l.target_span = ? AND coalesce(l.target_run, r.run_id) = ?"
        " ORDER BY l.rowid LIMIT 50",
        (span_id, run_id),
    )
    return [(_span_ref(row), row[6]) for row in rows]


# --- text -----------------------------------------------------------------------------------


def search(
    connection: sqlite3.Connection, query: SearchQuery, after: str | None, limit: int
) -> SearchResult:
    """Return up to `limit` hits in a fixed order, and a cursor if the search is not complete."""
    first_part, last = _parse_cursor(after, query)
    run = None
    if query.run_id is not None:
        (run,) = connection.execute(
            "SELECT id FROM runs WHERE run_id = ?", (query.run_id,)
        ).fetchone()
    scan = _Scan(connection, query, run)
    hits: list[Hit] = []
    for part in query.parts[query.parts.index(first_part) :]:
        iter_part = scan.iter_bodies if part == "bodies" else scan.iter_rows
        for cursor, hit in iter_part(part, last if part == first_part else None):
            check_cancelled()
            if hit is not None:
                hits.append(hit)
                if len(hits) >= limit:
                    return SearchResult(hits, cursor, f"{limit} hits")
            elif scan.is_over():
                return SearchResult(hits, cursor, scan.format_limit())
    return SearchResult(hits, None, "")


def _parse_cursor(after: str | None, query: SearchQuery) -> tuple[str, int | None]:
    if after is None:
        return query.parts[0], None
    part, _, number = after.partition(":")
    if part not in query.parts or not number.isdecimal():
        raise UsageError(
            f"--after {after!r}: not a cursor of this search. Use the cursor of its last answer."
        )
    return part, int(number[:18])


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
                    yield cursor, _hit(cursor, _span_ref(row), name, row[6], match, None, 1, 0)
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
            return _span_ref(row), "input" if row[6] == body else "output"
        row = self.connection.execute(_OWNER_LOG.format(runs), values).fetchone()
        return (_span_ref(row), "log body") if row is not None else None


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
SELECT {_SPAN_REF}, s.input_body FROM spans s JOIN runs r ON r.id = s.run
WHERE {{}} AND (s.input_body = :body OR s.output_body = :body) ORDER BY s.id LIMIT 1
"""
_OWNER_LOG = """
SELECT r.run_id, t.span_id, r.id, t.number, t.type, coalesce(t.name, r.name)
FROM logs s JOIN runs r ON r.id = s.run LEFT JOIN spans t ON t.span_id = s.span_id AND t.run = s.run
WHERE {} AND s.body = :body ORDER BY s.id LIMIT 1
"""


# --- findings -------------------------------------------------------------------------------


def check_results(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> Mapping[str, Sequence[CheckResult]]:
    results_of_runs: dict[str, dict[str, CheckResult]] = {}
    rows = connection.execute(
        "SELECT r.run_id, f.check_name, f.check_version, f.finding FROM findings f"
        " JOIN runs r ON r.id = f.run WHERE r.run_id IN (SELECT value FROM json_each(?))"
        " ORDER BY f.rowid",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    for run_id, name, version, text in rows:
        results = results_of_runs.setdefault(run_id, {})
        result = results.setdefault(name, CheckResult(name, version, []))
        if text is not None:
            result.findings.append(_decode_finding(text))  # type: ignore[attr-defined]  # a list
    return {run_id: list(results.values()) for run_id, results in results_of_runs.items()}


def store_findings(
    connection: sqlite3.Connection, run: RunInfo, results: Sequence[CheckResult]
) -> None:
    """Replace the stored results of a run, in the caller's transaction."""
    row = connection.execute(
        "SELECT id FROM runs WHERE run_id = ? AND last_ns = ? AND span_count = ? AND log_count = ?"
        " AND error_count = ? AND outcome = ?",
        (run.id, run.last_ns, run.span_count, run.log_count, run.error_count, run.outcome),
    ).fetchone()
    if row is None:
        return  # the run has changed since it was read, or was deleted
    connection.execute("DELETE FROM findings WHERE run = ?", row)
    rows = []
    for result in results:
        findings = [msgspec.json.encode(each).decode() for each in result.findings]
        rows += [(row[0], result.name, result.version, text) for text in findings or (None,)]
    connection.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
