"""Note: what somebody said about a run, a span or an event of it, after the fact.

Notes are no records: they are not part of what happened, and stand beside it.
"""

from __future__ import annotations

import msgspec


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
