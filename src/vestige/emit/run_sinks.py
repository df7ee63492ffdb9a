"""Sinks that get the records of one run, in addition to the journal.

A program may have several recorders, and the records of a run may come from any of them. So a sink
is registered for a run, not with a recorder.

    SINKS[run_id] = sink            # It gets every further record of that run.
    SINKS.pop(run_id, None)

A sink is called in the thread that emitted, after the record is in the journal. Its exceptions are
counted, except guardrails (errors.py), which deliberately reach the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vestige.record.types import KnownRecord, SpanClose, SpanOpen

if TYPE_CHECKING:
    from vestige.home import Home


class RecordSource(Protocol):
    """The recorder that emitted a record."""

    home: Home


class RunSink(Protocol):
    def take(self, record: KnownRecord, unredacted: KnownRecord, source: RecordSource) -> None:
        """Receive a redacted record.

        `unredacted` is for a sink that redacts by itself. It must never be written unchanged.
        """

    def take_both(self, opened: SpanOpen, closed: SpanClose, source: RecordSource) -> None:
        """Receive a finished span that contained nothing to redact."""


SINKS: dict[str, RunSink] = {}
