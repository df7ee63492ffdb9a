"""Note: what somebody said about a run, a span or an event of it, after the fact.

Notes are no records: they are not part of what happened, and stand beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vestige.limits import NAME_MAX, NOTE_MAX
from vestige.record.coercion import clean_text

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One note. Its text is masked before it is kept."""

    id: str
    """A UUIDv4, or what the source that it came with calls it."""
    run_id: str
    text: str
    created_ns: int
    span_id: str | None = None
    """None: the run as a whole."""
    event_id: str | None = None
    """An event of a format that numbers them."""
    author: str | None = None


def masked(note: Note, redactor: Redactor) -> Note:
    """As it may be kept: without secrets, of bounded length, and of text that every file can hold."""

    def fit(text: str, size: int) -> str:
        # Masked first: a secret that is cut in two would not be known any more.
        text = redactor.text(clean_text(text))
        return text if len(text) <= size else text[: size - 1] + "…"

    return msgspec.structs.replace(
        note,
        id=fit(note.id, NAME_MAX),
        text=fit(note.text, NOTE_MAX),
        span_id=None if note.span_id is None else fit(note.span_id, NAME_MAX),
        event_id=None if note.event_id is None else fit(note.event_id, NAME_MAX),
        author=None if note.author is None else fit(note.author, NAME_MAX),
    )
