"""Who else wants the records of one run, beside the journal.

A program may have several recorders, and the records of a run may come from any of them: from
whichever one the code at hand was given. So a sink is registered for a run, not with a recorder.

    SINKS[run_id] = sink            # from now on it gets every record of that run
    SINKS.pop(run_id, None)

A sink is called in the thread that emitted, after the record is in the journal. What it raises
is counted, except a guardrail (errors.py), which is meant to reach the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vestige.record.types import KnownRecord, SpanClose, SpanOpen

if TYPE_CHECKING:
    from vestige.home import Home


class From(Protocol):
    """The recorder that a record came from."""

    home: Home


class RunSink(Protocol):
    def take(
        self,
        record: KnownRecord,
        given: KnownRecord,
        source: From,
    ) -> None:
        """`record` is redacted. `given` is as it was emitted: only for a sink that has a
        redaction of its own, and never to be written as it is."""

    def take_both(self, opened: SpanOpen, closed: SpanClose, source: From) -> None:
        """A span of one moment, in which there was nothing to redact."""


SINKS: dict[str, RunSink] = {}
