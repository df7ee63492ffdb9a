"""The rows of one run as a page needs them: no bodies, no objects, only what is new since a cursor.

A cursor is where the tables ended when they were last read, and which spans were not settled then:
a span's row changes in place when it ends, when its opening is read after its end, and what is told
of it changes when its parent comes after it (two processes write one run).

    rows = read_rows(connection, run_number, Cursor(), limit)
    later = read_rows(connection, run_number, rows.cursor, limit)

Elsewhere: a run whole, as objects, in store/sqlite/read/run_loader.py.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

OPEN_MAX: Final = 500
"""Open spans that a cursor names: it travels in a URL. Of a run with more, all is read again."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a run has been read."""

    span: int = 0
    log: int = 0
    link: int = 0
    open: tuple[int, ...] | None = ()
    """Rows of spans that were not settled; None: too many to name."""

    def __str__(self) -> str:
        held = "x" if self.open is None else "-".join(f"{row:x}" for row in self.open)
        return f"{self.span:x}.{self.log:x}.{self.link:x}.{held}"


def parse_cursor(text: str) -> Cursor:
    """ValueError: not one of ours."""
    if len(text) > OPEN_MAX * 17 + 64:
        raise ValueError("too long")
    span, log, link, held = text.split(".")
    places = [int(part, 16) for part in (span, log, link)]
    rows = None if held == "x" else tuple(int(row, 16) for row in held.split("-") if row)
    if min(places, default=0) < 0 or max([*places, *(rows or ())]) >= 2**63:
        raise ValueError("out of range")
    if rows is not None and (len(rows) > OPEN_MAX or min(rows, default=0) < 0):
        raise ValueError("too many spans")
    return Cursor(places[0], places[1], places[2], rows)


@dataclass(frozen=True, slots=True)
class OutlineRows:
    """What is new or changed; tuples in the order of the statements below."""

    spans: list[tuple[Any, ...]]
    logs: list[tuple[Any, ...]]
    links: list[tuple[Any, ...]]
    cursor: Cursor
    more: bool


def read_rows(
    connection: sqlite3.Connection, run: int, after: Cursor, limit: int, message_max: int
) -> OutlineRows:
    """At most `limit` new spans and as many lines; and the spans that were open, as they are now."""
    execute = connection.execute
    known = _read_again(connection, run, after)
    new = execute(f"{_SPANS} AND s.id > ? ORDER BY s.id LIMIT ?", (run, after.span, limit + 1))
    spans = new.fetchall()
    more = len(spans) > limit
    spans = spans[:limit]
    logs = execute(_LOGS, (message_max, run, after.log, limit + 1)).fetchall()
    more |= len(logs) > limit
    logs = logs[:limit]
    links = execute(_LINKS, (run, after.link, limit + 1)).fetchall()
    more |= len(links) > limit
    links = links[:limit]
    rows = [*known, *spans]
    unfinished = tuple(row[0] for row in rows if row[10] is None or row[16] or row[17])
    cursor = Cursor(
        spans[-1][0] if spans else after.span,
        logs[-1][0] if logs else after.log,
        links[-1][0] if links else after.link,
        unfinished if len(unfinished) <= OPEN_MAX else None,
    )
    return OutlineRows(rows, logs, links, cursor, more)


def _read_again(connection: sqlite3.Connection, run: int, after: Cursor) -> list[tuple[Any, ...]]:
    if after.open is None:
        return connection.execute(f"{_SPANS} AND s.id <= ?", (run, after.span)).fetchall()
    marks = ", ".join("?" * len(after.open))
    query = f"{_SPANS} AND s.id IN ({marks}) ORDER BY s.id"
    return connection.execute(query, (run, *after.open)).fetchall() if after.open else []


def read_numbers(
    connection: sqlite3.Connection, run: int, span_ids: Sequence[str]
) -> dict[str, int]:
    """Numbers of spans of a run, for parents that stand outside what was read."""
    rows = connection.execute(
        "SELECT s.span_id, s.number FROM json_each(?) w JOIN spans s ON s.span_id = w.value"
        " WHERE s.run = ?",
        (msgspec.json.encode(list(span_ids)).decode(), run),
    )
    return dict(rows.fetchall())


@dataclass(frozen=True, slots=True)
class Losses:
    """What is not there of a run, or not as it was."""

    redactions: dict[str, int]
    """By rule."""
    bodies_cut: int
    bodies_lost: int
    records_dropped: int
    records_missing: int
    lines_malformed: int
    """The last three of the processes that wrote the run."""
    not_sampled: bool


def read_losses(connection: sqlite3.Connection, run: int) -> Losses:
    redactions: Counter[str] = Counter()
    lost: Counter[bool] = Counter()
    for redacted, *infos in connection.execute(_MARKED, {"run": run}):
        redactions.update(_decode(redacted) if redacted else {})
        lost.update("lost" in _decode(info) for info in infos if info)
    sampled = connection.execute(_UNSAMPLED, (run,)).fetchone()
    dropped = missing = malformed = 0
    for seen, was_dropped, was_malformed in connection.execute(_WRITERS, {"run": run}):
        missing += SeqRanges.parse(seen).missing
        dropped += was_dropped
        malformed += was_malformed
    rules = dict(sorted(redactions.items()))
    return Losses(rules, lost[False], lost[True], dropped, missing, malformed, sampled is not None)


def writer_names(connection: sqlite3.Connection, rows: set[int]) -> dict[int, str]:
    found = connection.execute(
        "SELECT w.id, w.writer FROM json_each(?) r JOIN writers w ON w.id = r.value",
        (msgspec.json.encode(sorted(rows)).decode(),),
    )
    return dict(found.fetchall())


_SPANS = """
SELECT s.id, s.number, s.span_id, s.parent_id, s.writer, coalesce(s.seq, 0), s.started_ns, s.type,
  s.name, s.component, s.status, s.duration_ns, s.attributes, s.input_body, s.input_bytes,
  s.output_bytes, s.seq IS NULL, s.parent_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM spans p WHERE p.span_id = s.parent_id AND p.run = s.run)
FROM spans s WHERE s.run = ?
"""
_LOGS = """
SELECT l.id, l.seq, l.span_id, l.writer, l.time_ns, l.level, l.component,
  substr(l.message, 1, ?), length(l.message), l.attributes
FROM logs l WHERE l.run = ? AND l.id > ? ORDER BY l.id LIMIT ?
"""
_LINKS = """
SELECT k.rowid, k.span_id, k.target_run, k.target_span, k.reason
FROM links k WHERE k.run = ? AND k.rowid > ? ORDER BY k.rowid LIMIT ?
"""
_MARKED = """
SELECT redacted, input_info, output_info FROM spans WHERE run = :run
  AND (redacted IS NOT NULL OR input_info IS NOT NULL OR output_info IS NOT NULL)
UNION ALL
SELECT redacted, body_info, NULL FROM logs WHERE run = :run
  AND (redacted IS NOT NULL OR body_info IS NOT NULL)
"""
_UNSAMPLED = """
SELECT 1 FROM spans WHERE run = ? AND type = 'run' AND json_extract(attributes, '$.sampled') = 0 LIMIT 1
"""
_WRITERS = """
SELECT seen, dropped, malformed FROM writers WHERE id IN (
  SELECT writer FROM spans WHERE run = :run UNION SELECT writer FROM logs WHERE run = :run)
"""
