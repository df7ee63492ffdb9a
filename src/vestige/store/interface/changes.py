"""The change feed: new spans, log records and ends of spans since a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from vestige.limits import LIVE_BATCH
from vestige.record.run import RunInfo

Cursor = str
"""A position in the feed. It stays valid after a restart, and for any reader of the store."""


class SpanChange(msgspec.Struct, frozen=True):
    """The current state of a span that is new or has ended."""

    cursor: Cursor
    """The cursor to continue after this change."""
    run: int
    run_id: str
    number: int
    span_id: str
    parent_id: str | None
    type: str
    name: str
    component: str
    status: str | None
    started_ns: int
    duration_ns: int | None


class LogChange(msgspec.Struct, frozen=True):
    """A new log record."""

    cursor: Cursor
    run: int
    run_id: str
    span_id: str | None
    time_ns: int
    level: str
    component: str
    message: str


class Changes(msgspec.Struct, frozen=True):
    """Changes in the order of their cursors, and the current state of their runs."""

    spans: Sequence[SpanChange]
    logs: Sequence[LogChange]
    runs: Sequence[RunInfo]
    cursor: Cursor
    more: bool
    """True if the limit was reached, and more changes can be read now."""
    lost: bool = False
    """True if the cursor is too old, or from another store. Start again at `cursor`."""


class ChangeFeed(Protocol):
    """The methods of the change feed."""

    def cursor(self) -> Cursor:
        """Return the current end of the feed."""

    def is_cursor(self, text: str) -> bool:
        """Return whether a text has the form of a cursor of this store."""

    def changes(self, after: Cursor, run_id: str | None = None, limit: int = LIVE_BATCH) -> Changes:
        """Return the changes of all runs or one, at most `limit` rows of each kind.

        Raise ValueError if the cursor is not valid.
        """
