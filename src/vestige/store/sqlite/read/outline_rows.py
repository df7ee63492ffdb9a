"""The rows of one run for the viewer: named tuples, without bodies, new since a cursor.

A cursor has the ends of the tables at the last read, and the spans that could still change. The
row of a span changes in place when it ends, and when its opening is read after its end. Its
position changes when its parent arrives later, from another process of the run.

    rows = read_outline(connection, run_number, None, limit, message_max)
    later = read_outline(connection, run_number, rows.cursor, limit, message_max)

Elsewhere: a complete run as objects, run_loader.py.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from vestige.store.interface.spans import (
    Losses,
    OutlineLink,
    OutlineLog,
    OutlineRows,
    OutlineSpan,
)
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

OPEN_MAX: Final = 500
"""Open spans in a cursor, which is part of a URL. Runs with more are read again completely."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position up to which a run has been read."""

    span: int = 0
    log: int = 0
    link: int = 0
    open: tuple[int, ...] | None = ()
    """Row ids of spans that could still change. None: there are more than OPEN_MAX."""

    def __str__(self) -> str:
        open_rows = "x" if self.open is None else "-".join(f"{row:x}" for row in self.open)
        return f"{self.span:x}.{self.log:x}.{self.link:x}.{open_rows}"


def parse_cursor(text: str) -> Cursor:
    """Parse the text of a cursor. Raise ValueError if it is not valid."""
    if len(text) > OPEN_MAX * 17 + 64:
        raise ValueError("too long")
    span, log, link, open_rows = text.split(".")
    ends = [int(part, 16) for part in (span, log, link)]
    rows = None if open_rows == "x" else tuple(int(row, 16) for row in open_rows.split("-") if row)
    if min(ends, default=0) < 0 or max([*ends, *(rows or ())]) >= 2**63:
        raise ValueError("out of range")
    if rows is not None and (len(rows) > OPEN_MAX or min(rows, default=0) < 0):
        raise ValueError("too many spans")
    return Cursor(ends[0], ends[1], ends[2], rows)


def read_outline(
    connection: sqlite3.Connection, run: int, after: str | None, limit: int, message_max: int
) -> OutlineRows:
    before = Cursor() if after is None else parse_cursor(after)
    execute = connection.execute
    known = _reread_open(connection, run, before)
    new = execute(f"{_SPANS} AND s.id > ? ORDER BY s.id LIMIT ?", (run, before.span, limit + 1))
    spans = new.fetchall()
    more = len(spans) > limit
    spans = spans[:limit]
    logs = execute(_LOGS, (message_max, run, before.log, limit + 1)).fetchall()
    more |= len(logs) > limit
    logs = logs[:limit]
    links = execute(_LINKS, (run, before.link, limit + 1)).fetchall()
    more |= len(links) > limit
    links = links[:limit]
    rows = [*map(OutlineSpan._make, known), *map(OutlineSpan._make, spans)]
    log_rows = [*map(OutlineLog._make, logs)]
    link_rows = [*map(OutlineLink._make, links)]
    cursor = Cursor(
        spans[-1][0] if spans else before.span,
        logs[-1][0] if logs else before.log,
        links[-1][0] if links else before.link,
        _find_unfinished(rows),
    )
    writers = {row.writer for row in rows} | {log.writer for log in log_rows}
    return OutlineRows(
        rows,
        log_rows,
        link_rows,
        _read_writers(connection, writers),
        _read_numbers(connection, run, rows, log_rows, link_rows),
        str(cursor),
        more,
    )


def _find_unfinished(rows: Sequence[OutlineSpan]) -> tuple[int, ...] | None:
    """Return the row ids of spans that could still change, or None if there are too many."""
    unfinished = tuple(
        row.row
        for row in rows
        if row.status is None or row.opening_is_missing or row.parent_is_missing
    )
    return unfinished if len(unfinished) <= OPEN_MAX else None


def _reread_open(connection: sqlite3.Connection, run: int, after: Cursor) -> list[tuple[Any, ...]]:
    if after.open is None:
        return connection.execute(f"{_SPANS} AND s.id <= ?", (run, after.span)).fetchall()
    marks = ", ".join("?" * len(after.open))
    query = f"{_SPANS} AND s.id IN ({marks}) ORDER BY s.id"
    return connection.execute(query, (run, *after.open)).fetchall() if after.open else []


def _read_numbers(
    connection: sqlite3.Connection,
    run: int,
    spans: Sequence[OutlineSpan],
    logs: Sequence[OutlineLog],
    links: Sequence[OutlineLink],
) -> dict[str, int]:
    """Return span numbers by span id. Ids outside these rows are looked up in one query."""
    numbers = {row.span_id: row.number for row in spans}
    used: set[str | None] = {row.parent_id for row in spans}
    used |= {log.span_id for log in logs} | {link.span_id for link in links}
    missing = [span_id for span_id in used if span_id and span_id not in numbers]
    if missing:
        rows = connection.execute(
            "SELECT s.span_id, s.number FROM json_each(?) w JOIN spans s ON s.span_id = w.value"
            " WHERE s.run = ?",
            (msgspec.json.encode(missing).decode(), run),
        )
        numbers.update(rows)
    return numbers


def read_losses(connection: sqlite3.Connection, run: int) -> Losses:
    redactions: Counter[str] = Counter()
    lost: Counter[bool] = Counter()
    for redacted, *infos in connection.execute(_MARKED, {"run": run}):
        redactions.update(_decode(redacted) if redacted else {})
        lost.update("lost" in _decode(info) for info in infos if info)
    unsampled = connection.execute(_UNSAMPLED, (run,)).fetchone() is not None
    dropped = missing = malformed = 0
    for seen, was_dropped, was_malformed in connection.execute(_WRITERS, {"run": run}):
        missing += SeqRanges.parse(seen).missing
        dropped += was_dropped
        malformed += was_malformed
    rules = dict(sorted(redactions.items()))
    return Losses(rules, lost[False], lost[True], dropped, missing, malformed, unsampled)


def _read_writers(connection: sqlite3.Connection, rows: set[int]) -> dict[int, str]:
    found = connection.execute(
        "SELECT w.id, w.writer FROM json_each(?) r JOIN writers w ON w.id = r.value",
        (msgspec.json.encode(sorted(rows)).decode(),),
    )
    return dict(found.fetchall())


# In the order of the fields of OutlineSpan, OutlineLog and OutlineLink.
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
SELECT 1 FROM spans
WHERE run = ? AND type = 'run' AND json_extract(attributes, '$.sampled') = 0 LIMIT 1
"""
_WRITERS = """
SELECT seen, dropped, malformed FROM writers WHERE id IN (
  SELECT writer FROM spans WHERE run = :run UNION SELECT writer FROM logs WHERE run = :run)
"""
