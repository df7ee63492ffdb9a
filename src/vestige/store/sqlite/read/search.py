"""Search a store: ids, attribute values, text; and the findings that were kept.

Functions over a connection; nothing here writes except `store_findings`, in its caller's
transaction. Text is searched in the deduplicated pieces and short bodies, each once, and a hit is
then led to the first body and span that contain it. So a message that a hundred requests
repeat is one hit, and so is a tiny text that stands on many sheets. The one thing that cannot be found is text across two pieces: two
messages, or the seam at each MiB of a longer one.

A search may take long, so it goes in steps over row ids, newest first in a whole store and
oldest first in one run, and stops at a bound of rows or bytes. Where it stopped is a
cursor (`bodies:4711`) that stays good while the store grows.
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
from vestige.record.run import RunInfo
from vestige.store.protocol import CheckResult, Hit, Searched, SearchQuery, SpanRef
from vestige.store.sqlite.bodies.compression import decompress
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX, PackReader, find_packed, find_time

AROUND = 60
"""Characters shown on each side of a match."""

MATCH_SHOWN = 80

SEARCH_ROWS_MAX = 400_000
"""Of a search in the whole store, newest first: some tenths of a second. Counted, not timed, so
that the same question gives the same answer. Then the reader decides whether to go on."""

SEARCH_BYTES_MAX = 256 * MIB
"""Of text, unpacked: the bound of a search in one run."""

_ROWS_A_PIECE = 20
_BYTES_A_ROW = 512
"""A piece of a body takes as long as so many rows, and as one more for so many bytes."""

PREFIX_MIN = 4
"""Characters of a span id: fewer fit too many."""

_ROWS_A_STEP = 20_000
_PIECES_A_STEP = 64
_OWNERS_TRIED = 200

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_finding = msgspec.json.Decoder(Finding).decode

_PLACE = "r.run_id, s.span_id, r.id, s.number, s.type, s.name"


def _place(row: Sequence[Any]) -> SpanRef:
    run_id, span_id, run, number, kind, name = row[:6]
    if span_id is None or number is None:
        return SpanRef(run_id, None, f"r{run}", "run", name or "?")
    return SpanRef(run_id, span_id, f"r{run}.s{number}", kind, name)


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
        f"SELECT {_PLACE} FROM spans s JOIN runs r ON r.id = s.run WHERE {where}"
        " ORDER BY s.id LIMIT 50",
        values,
    )
    found = [_place(row) for row in rows]
    return [place for place in found if place.span_id == text] or found


def find_attribute(connection: sqlite3.Connection, value: str, limit: int) -> list[SpanRef]:
    """Exactly this value, of any attribute; newest first, and each span once.

    A model call mentions the tool calls that it asked for (`tool_call.0.id`): where a span is one
    of them, that is meant."""
    written = msgspec.json.encode(value).decode()
    forms = (value, written) if value.isdecimal() else (written,)
    found: dict[tuple[str, str | None], SpanRef] = {}
    mentioned: set[tuple[str, str | None]] = set()
    for table in ("spans", "logs"):
        for row in connection.execute(
            _ATTRIBUTE[table].format(" OR ".join([_HAS] * len(forms))), forms
        ):
            place = _place(row)
            held = [key for key, each in _decode(row[6]).items() if str(each) == value]
            if held:
                found.setdefault((place.run_id, place.span_id), place)
                if all(key.startswith(_MENTIONS) for key in held):
                    mentioned.add((place.run_id, place.span_id))
            if len(found) >= limit:
                break
    if len(mentioned) < len(found):
        found = {key: place for key, place in found.items() if key not in mentioned}
    return list(found.values())


_MENTIONS = "tool_call."
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
        f"SELECT {_PLACE}, l.reason FROM links l JOIN runs r ON r.id = l.run"
        " JOIN spans s ON s.run = l.run AND s.span_id = l.span_id"
        " WHERE l.target_span = ? AND coalesce(l.target_run, r.run_id) = ?"
        " ORDER BY l.rowid LIMIT 50",
        (span_id, run_id),
    )
    return [(_place(row), row[6]) for row in rows]


# --- text -----------------------------------------------------------------------------------


def search(
    connection: sqlite3.Connection, wanted: SearchQuery, after: str | None, limit: int
) -> Searched:
    """Hits in a fixed order, up to `limit`; and a cursor if that, or a bound, ended it."""
    phase, last = _parse_cursor(after, wanted)
    run = None
    if wanted.run_id is not None:
        (run,) = connection.execute(
            "SELECT id FROM runs WHERE run_id = ?", (wanted.run_id,)
        ).fetchone()
    looking = _Looking(connection, wanted, run)
    hits: list[Hit] = []
    for part in wanted.parts[wanted.parts.index(phase) :]:
        scan = looking.bodies if part == "bodies" else looking.rows
        for cursor, hit in scan(part, last if part == phase else None):
            if hit is not None:
                hits.append(hit)
                if len(hits) >= limit:
                    return Searched(hits, cursor, f"{limit} hits")
            elif looking.is_over():
                return Searched(hits, cursor, looking.spent())
    return Searched(hits, None, "")


def _parse_cursor(after: str | None, wanted: SearchQuery) -> tuple[str, int | None]:
    if after is None:
        return wanted.parts[0], None
    phase, _, number = after.partition(":")
    if phase not in wanted.parts or not number.isdecimal():
        raise UsageError(
            f"--after {after!r}: no cursor of this search. Use the one that an answer ended with."
        )
    return phase, int(number[:18])


@dataclass(slots=True)
class _Looking:
    """One search under way."""

    connection: sqlite3.Connection
    wanted: SearchQuery
    run: int | None
    seen_bytes: int = 0
    seen_rows: int = 0
    """Of the whole store; a search in one run is bounded by its bytes alone."""
    own: frozenset[int] | None = None
    """Bodies of the one run that is searched."""
    told: set[str] = field(default_factory=set)
    """Tiny texts that were a hit."""

    def is_over(self) -> bool:
        return self.seen_bytes > SEARCH_BYTES_MAX or self.seen_rows > SEARCH_ROWS_MAX

    def spent(self) -> str:
        if self.seen_bytes > SEARCH_BYTES_MAX:
            return f"{SEARCH_BYTES_MAX // MIB} MiB searched"
        return "a part of the store searched, the newest"

    # --- attributes and log lines ---------------------------------------------------------

    def rows(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        query = _ATTRS if part == "attrs" else _LOG_LINES
        has, literals = _has(
            self.wanted, ("name", "attributes") if part == "attrs" else ("message", "attributes")
        )
        for where, values, end in self._steps("spans" if part == "attrs" else "logs", last):
            sql = query.format(where.format(has))
            for row in self.connection.execute(sql, (*values, *literals)):
                cursor = f"{part}:{row[7]}"
                for match in self.wanted.pattern.finditer(row[6]):
                    name = "attrs" if part == "attrs" else "log"
                    yield cursor, _hit(cursor, _place(row), name, row[6], match, None, 1, 0)
                    break
            self.seen_rows += 0 if self.run is not None else values[1] - values[0]
            yield f"{part}:{end}", None

    def _steps(self, table: str, last: int | None) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """Conditions that take the rows in order, some at a time."""
        if self.run is not None:
            order = "t.run = ? AND t.id > ?{} ORDER BY t.id"
            (end,) = self.connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
            yield order, (self.run, last or 0), end
            return
        (top,) = self.connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        top = top if last is None else min(top, last - 1)
        while top > 0:
            low = max(0, top - _ROWS_A_STEP)
            yield "t.id > ? AND t.id <= ?{} ORDER BY t.id DESC", (low, top), low + 1
            top = low

    # --- bodies ---------------------------------------------------------------------------

    def bodies(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        if self.run is not None:
            rows = self.connection.execute(_BODIES_OF_RUN, {"run": self.run})
            self.own = frozenset(row[0] for row in rows if row[0] is not None)
        sheet = PackReader(self.connection)
        for ids in self._piece_steps(last):
            marks = ",".join("?" * len(ids))
            rows = self.connection.execute(_TEXTS.format(marks), (*ids, *ids))
            found = {row[0]: row[1:] for row in rows}
            for piece in ids:
                tiny = piece not in found
                if tiny:
                    raw = sheet.read(piece)
                    if raw is None:
                        continue
                else:
                    codec, size, data = found[piece]
                    raw = decompress(codec, data, size)
                self.seen_bytes += len(raw)
                if self.run is None:
                    self.seen_rows += _ROWS_A_PIECE + len(raw) // _BYTES_A_ROW
                text = raw.decode(errors="surrogateescape")
                matches = self.wanted.pattern.finditer(text)
                match = next(matches, None)
                if match is None or (tiny and text in self.told):
                    continue
                cursor = f"{part}:{piece}"
                hit = self._owned(cursor, piece, text, match, 1 + sum(1 for _ in matches))
                if hit is not None:
                    if tiny:
                        self.told.add(text)
                    yield cursor, hit
            yield f"{part}:{ids[-1]}", None

    def _piece_steps(self, last: int | None) -> Iterator[list[int]]:
        """Ids of pieces, short and tiny bodies, in order, some at a time."""
        if self.run is not None:
            rows = self.connection.execute(_PIECES_OF_RUN, {"run": self.run, "last": last or 0})
            given = self.connection.execute(_TINY_OF_RUN, {"run": self.run})
            tiny = find_packed(self.connection, [row[0] for row in given])
            ids = sorted(
                (*(row[0] for row in rows), *(each for each in tiny if each > (last or 0)))
            )
            for at in range(0, len(ids), _PIECES_A_STEP):
                yield ids[at : at + _PIECES_A_STEP]
            return
        top = 2**62 if last is None else last
        while True:
            values = {"top": top, "count": _PIECES_A_STEP}
            found = self.connection.execute(_NEWEST_TEXTS, values).fetchall()
            if not found:
                return
            newest = [
                body_id
                for first, texts in found
                for body_id in range(min(first + texts, top) - 1, first - 1, -1)
            ]
            for at in range(0, len(newest), _PIECES_A_STEP):
                yield newest[at : at + _PIECES_A_STEP]
            top = found[-1][0]

    def _owned(self, cursor: str, piece: int, text: str, match: Any, count: int) -> Hit | None:
        """The hit at the first body that has this piece, and the record that had it first."""
        rows = self.connection.execute(_BODIES_OF_PIECE, (piece,)).fetchall()
        if not rows and (at_ns := find_time(self.connection, piece)) is not None:
            rows = [(piece, at_ns, at_ns, 0)]
        mine = rows if self.own is None else [row for row in rows if row[0] in self.own]
        for body, first_ns, last_ns, start in mine[:_OWNERS_TRIED]:
            # Retention may have taken the run that had it first; then the last one has it still.
            owner = self._owner(body, first_ns) or self._owner(body, last_ns)
            if owner is not None:
                place, part = owner
                at = start + len(text[: match.start()].encode(errors="surrogateescape"))
                return _hit(cursor, place, part, text, match, at, count, len(rows))
        return None

    def _owner(self, body: int, at_ns: int) -> tuple[SpanRef, str] | None:
        """No index leads from a body to its span: a time at which it was seen does."""
        if self.run is not None:
            runs = "s.run = :run"
        else:
            runs = "s.run IN (SELECT id FROM runs WHERE started_ns <= :at AND last_ns >= :at)"
        values = {"run": self.run, "at": at_ns, "body": body}
        row = self.connection.execute(_OWNER_SPAN.format(runs), values).fetchone()
        if row is not None:
            return _place(row), "input" if row[6] == body else "output"
        row = self.connection.execute(_OWNER_LOG.format(runs), values).fetchone()
        return (_place(row), "log body") if row is not None else None


def _has(wanted: SearchQuery, columns: Sequence[str]) -> tuple[str, list[str]]:
    """A condition that passes over what cannot match, and its values; the pattern decides then."""
    if not wanted.literals:
        return "", []
    if wanted.ignore_case:
        test = "t.{} LIKE ? ESCAPE '\\'"
        values = [f"%{_LIKE_SPECIAL.sub(_ESCAPED, literal)}%" for literal in wanted.literals]
    else:
        test, values = "instr(t.{}, ?) > 0", list(wanted.literals)
    tests = [test.format(column) for column in columns for _ in values]
    return f" AND ({' OR '.join(tests)})", values * len(columns)


_LIKE_SPECIAL = re.compile(r"[%_\\]")
_ESCAPED = r"\\\g<0>"


def _hit(
    cursor: str,
    place: SpanRef,
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
        place,
        part,
        text[max(0, start - AROUND) : start],
        text[start : min(end, start + MATCH_SHOWN)],
        text[end : end + AROUND],
        at,
        count,
        bodies,
    )


_ATTRS = """
SELECT r.run_id, t.span_id, r.id run, t.number, t.type, t.name, t.name || ' ' || coalesce(t.attributes, '') text, t.id
FROM spans t JOIN runs r ON r.id = t.run WHERE {}
"""
_LOG_LINES = """
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
    SELECT input_body FROM spans WHERE run = :run AND input_bytes < {TINY_MAX} AND input_body IS NOT NULL UNION
    SELECT output_body FROM spans WHERE run = :run AND output_bytes < {TINY_MAX} AND output_body IS NOT NULL UNION
    SELECT body FROM logs WHERE run = :run AND body_bytes < {TINY_MAX} AND body IS NOT NULL"""
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
SELECT {_PLACE}, s.input_body FROM spans s JOIN runs r ON r.id = s.run
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
    found: dict[str, dict[str, CheckResult]] = {}
    rows = connection.execute(
        "SELECT r.run_id, f.check_name, f.check_version, f.finding FROM findings f"
        " JOIN runs r ON r.id = f.run WHERE r.run_id IN (SELECT value FROM json_each(?))"
        " ORDER BY f.rowid",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    for run_id, name, version, text in rows:
        results = found.setdefault(run_id, {})
        result = results.setdefault(name, CheckResult(name, version, []))
        if text is not None:
            result.findings.append(_finding(text))  # type: ignore[attr-defined]  # the list above
    return {run_id: list(results.values()) for run_id, results in found.items()}


def store_findings(
    connection: sqlite3.Connection, run: RunInfo, results: Sequence[CheckResult]
) -> None:
    """Replace what is kept of a run; the caller's transaction."""
    row = connection.execute(
        "SELECT id FROM runs WHERE run_id = ? AND last_ns = ? AND span_count = ? AND log_count = ?"
        " AND error_count = ? AND outcome = ?",
        (run.id, run.last_ns, run.span_count, run.log_count, run.error_count, run.outcome),
    ).fetchone()
    if row is None:
        return  # it has grown since, or is gone
    connection.execute("DELETE FROM findings WHERE run = ?", row)
    rows = []
    for result in results:
        found = [msgspec.json.encode(each).decode() for each in result.findings]
        rows += [(row[0], result.name, result.version, text) for text in found or (None,)]
    connection.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
