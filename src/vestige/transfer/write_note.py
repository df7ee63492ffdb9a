"""Add, edit and delete notes of a home, each in a short transaction of its own.

A note waits for the current transaction of a collector, which takes moments.
"""

from __future__ import annotations

import getpass
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Final

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.home import Home
from vestige.limits import NOTE_MAX
from vestige.record.note import Note
from vestige.settings import find_store
from vestige.store.open import open_store

if TYPE_CHECKING:
    from vestige.query.debugger import Debugger


AUTHOR_S: Final = 2.0
"""Time for git to answer."""


@cache
def find_author() -> str | None:
    """Return the name of this user: `user.name` of git, else the name of the account."""
    try:
        command = ["git", "config", "--get", "user.name"]
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=AUTHOR_S, stdin=subprocess.DEVNULL
        )
        name = found.stdout.strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        name = ""
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


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
    _check_text(text)
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
    with open_store(find_store(home)) as store:
        store.add_note(note, debugger.store.tenant)
        stored = [each for each in store.notes(note.run_id) if each.id == note.id]
    if not stored:
        raise NotFoundError(f"{target.run.short_id}: was deleted while the note was written.")
    return stored[0]


def edit_note(home: Home, debugger: Debugger, id: str, which: str, text: str) -> Note:
    """Replace the text of a note, and return it as stored. `which`: its number, or its id."""
    _check_text(text)
    note = _find_note(debugger, id, which)
    with open_store(find_store(home)) as store:
        store.edit_note(note.run_id, note.id, text, debugger.store.tenant)
        return next(each for each in store.notes(note.run_id) if each.id == note.id)


def delete_note(home: Home, debugger: Debugger, id: str, which: str) -> Note:
    """Delete a note, and return what it was. `which`: its number, or its id."""
    note = _find_note(debugger, id, which)
    with open_store(find_store(home)) as store:
        store.delete_note(note.run_id, note.id, debugger.store.tenant)
    return note


def _check_text(text: str) -> None:
    if not text.strip():
        raise UsageError("note: the text is empty. Enter a text.")
    if len(text) > NOTE_MAX:
        raise UsageError(f"note: {len(text)} characters (at most {NOTE_MAX}). Shorten the text.")


def _find_note(debugger: Debugger, id: str, which: str) -> Note:
    """Return the note with this number, as `vestige notes` lists those of the id, or this id."""
    listed = debugger.notes(id)
    for number, note in enumerate(listed.notes, 1):
        if which in (str(number), note.id):
            return note
    raise NotFoundError(
        f"{id}: no note {which[:40]!r} (it has {len(listed.notes)}). See `vestige notes {id}`."
    )
