"""Redacted notes on runs, which are deleted with their run.

The caller owns the transaction. It is short, so a note can be written while a collector runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache

import msgspec

from vestige.errors import NotFoundError, UsageError
from vestige.limits import NOTES_MAX
from vestige.record.note import Note, masked
from vestige.record.redaction.redactor import Redactor
from vestige.store.interface.notes_and_findings import NoteSummary

_READ = """
SELECT n.id, r.run_id, n.text, n.created_ns, n.span_id, n.event_id, n.author
FROM notes n JOIN runs r ON r.id = n.run WHERE r.run_id = ? ORDER BY n.created_ns, n.id
"""
_NAMES = ("id", "run_id", "text", "created_ns", "span_id", "event_id", "author")
_TIME_MAX = 2**62


@cache
def _redactor() -> Redactor:
    """Return the redactor of this process, because creating its scanner is slow."""
    return Redactor()


def add_note(connection: sqlite3.Connection, note: Note, tenant: str | None) -> bool:
    """Store a note. Return False if a note with this id exists, which stays unchanged."""
    note = masked(note, _redactor())
    if not note.text.strip():
        raise UsageError("note: the text is empty.")
    run = _find_run(connection, note.run_id, tenant)
    if run is None:
        raise NotFoundError(f"{note.run_id[:80]!r}: no such run. See `vestige list`.")
    (count,) = connection.execute("SELECT count(*) FROM notes WHERE run = ?", (run,)).fetchone()
    if count >= NOTES_MAX:
        raise UsageError(f"{note.run_id}: already has {count} notes (at most {NOTES_MAX}).")
    cursor = connection.execute(
        "INSERT OR IGNORE INTO notes(run, id, span_id, event_id, author, created_ns, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            run,
            note.id,
            note.span_id,
            note.event_id,
            note.author,
            max(0, min(note.created_ns, _TIME_MAX)),
            note.text,
        ),
    )
    return cursor.rowcount > 0


def edit_note(
    connection: sqlite3.Connection, run_id: str, note_id: str, text: str, tenant: str | None
) -> bool:
    note = masked(Note(id=note_id, run_id=run_id, text=text, created_ns=0), _redactor())
    if not note.text.strip():
        raise UsageError("note: the text is empty.")
    run = _find_run(connection, run_id, tenant)
    cursor = connection.execute(
        "UPDATE notes SET text = ? WHERE run = ? AND id = ?", (note.text, run, note_id)
    )
    return cursor.rowcount > 0


def delete_note(
    connection: sqlite3.Connection, run_id: str, note_id: str, tenant: str | None
) -> bool:
    run = _find_run(connection, run_id, tenant)
    cursor = connection.execute("DELETE FROM notes WHERE run = ? AND id = ?", (run, note_id))
    return cursor.rowcount > 0


def read_notes(connection: sqlite3.Connection, run_id: str) -> list[Note]:
    rows = connection.execute(_READ, (run_id,))
    return [Note(**dict(zip(_NAMES, row, strict=True))) for row in rows]


def summarize_notes(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> dict[str, NoteSummary]:
    # With max() as the only aggregate of its kind, SQLite takes `text` from the row of the maximum.
    rows = connection.execute(
        "SELECT r.run_id, count(*), n.text, max(n.created_ns) FROM json_each(?) w"
        " JOIN runs r ON r.run_id = w.value JOIN notes n ON n.run = r.id GROUP BY 1",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    return {run_id: NoteSummary(count, text) for run_id, count, text, _ in rows}


def _find_run(connection: sqlite3.Connection, run_id: str, tenant: str | None) -> int | None:
    row = connection.execute(
        "SELECT id FROM runs WHERE run_id = ? AND tenant = coalesce(?, tenant)", (run_id, tenant)
    ).fetchone()
    return row[0] if row is not None else None
