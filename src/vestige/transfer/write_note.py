"""Add a note to a run or span of a home, in a short transaction of its own.

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
    with open_store(find_store(home)) as store:
        store.add_note(note, debugger.store.tenant)
        stored = [each for each in store.notes(note.run_id) if each.id == note.id]
    if not stored:
        raise NotFoundError(f"{target.run.short_id}: was deleted while the note was written.")
    return stored[0]
