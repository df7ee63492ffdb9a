"""Add a note to a run or span of a home, in a short transaction of its own.

A note waits for the current transaction of a collector, which takes moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.home import Home
from vestige.limits import NOTE_MAX
from vestige.record.note import Note
from vestige.store.sqlite.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from vestige.query.debugger import Debugger


def add_note(
    home: Home,
    debugger: Debugger,
    id: str,
    text: str,
    *,
    author: str | None = None,
    event_id: str | None = None,
    clock: clock.Clock = clock.SYSTEM,
) -> Note:
    """Add a note to the run or span with an id, and return it as stored, redacted.

    `debugger` reads the store of `home`. If it is restricted to a tenant, so is the note.
    """
    if not text.strip():
        raise UsageError("note: the text is empty. Enter a text.")
    if len(text) > NOTE_MAX:
        raise UsageError(f"note: {len(text)} characters (at most {NOTE_MAX}). Shorten the text.")
    target = debugger.resolve(id)
    note = Note(
        id=clock.run_id(),
        run_id=target.run.id,
        text=text,
        created_ns=clock.now_ns(),
        span_id=target.span_id,
        event_id=event_id,
        author=author,
    )
    with SqliteStore.open(home.store) as store:
        store.add_note(note, getattr(debugger.store, "tenant", None))
        stored = [each for each in store.notes(note.run_id) if each.id == note.id]
    if not stored:
        raise NotFoundError(f"{target.run.short_id}: was deleted while the note was written.")
    return stored[0]
