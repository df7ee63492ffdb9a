"""Note: a comment on a run, or on one of its spans or events, added later.

Notes are not records: they are not part of what happened, and are stored separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import NAME_MAX, NOTE_MAX
from vestige.record.coercion import clean_text

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note. Its text is redacted before it is stored."""

    id: str
    """A UUIDv4, or the id in the source that it was imported from."""
    run_id: str
    text: str
    created_ns: int
    span_id: str | None = None
    """None: the note is about the run."""
    event_id: str | None = None
    """The id of an event, in formats that number events."""
    author: str | None = None


def masked(note: Note, redactor: Redactor) -> Note:
    """Return the note as it is stored: redacted, with valid text of limited length."""

    def fit(text: str, size: int) -> str:
        # Redact first: a truncated secret would not be recognized.
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
