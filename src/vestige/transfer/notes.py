"""Write a note about something in a home: found like any id, kept in a short transaction of its own.

A collector that takes records in holds the store for moments; a note waits for that, and no longer.
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
    """A note about what `id` means to this debugger, as it is kept: masked. `debugger` is one over
    the store of `home`; where it is a tenant's, what it cannot see cannot be written to."""
    if not text.strip():
        raise UsageError("note: nothing is said in it. Give a text.")
    if len(text) > NOTE_MAX:
        raise UsageError(f"note: {len(text)} characters (at most {NOTE_MAX}). Say it in fewer.")
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
        kept = [each for each in store.notes(note.run_id) if each.id == note.id]
    if not kept:
        raise NotFoundError(f"{target.run.short_id}: went while the note was written.")
    return kept[0]
