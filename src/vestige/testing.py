"""A recorder for the tests of your program: it writes to memory, with predictable ids.

    recorder = FakeRecorder()
    my_agent(recorder)
    assert [span.name for span in recorder.spans] == ["triage", "search"]

It is the real recorder, including redaction, with a list as its journal. A test sees the records
that would be on disk.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from vestige._runtime.clock import Clock, FakeClock
from vestige.process_writer import Writer
from vestige.record.codec import parse_line
from vestige.record.types import OWN_COMPONENT, AnyRecord, Log, SpanClose, SpanOpen
from vestige.recorder import Recorder

__all__ = ["FakeClock", "FakeRecorder"]


class MemoryJournal:
    """A journal in memory."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.dropped = self.written_bytes = 0

    def write(self, line: bytes) -> bool:
        self.lines.append(line)
        self.written_bytes += len(line)
        return True

    def take_losses(self) -> Counter[Any]:
        return Counter()

    def prepare_end(self) -> None:
        pass

    def restart(self, writer: str) -> None:
        self.lines = []

    def close(self) -> None:
        pass


class _MemoryWriter(Writer):
    def _publish_parent(self) -> None:
        """Do nothing: child processes of a test do not belong to a run in memory."""


class FakeRecorder(Recorder):
    """A recorder without files or hooks. Pass a home if the program records long bodies."""

    def __init__(
        self, home: Any = "/nonexistent", *, clock: Clock | None = None, **more: Any
    ) -> None:
        more.setdefault("crash_hooks", False)
        super().__init__(home, clock=clock or FakeClock(), **more)

    def _join(self, clock: Clock) -> Writer:
        self.journal = MemoryJournal()
        return _MemoryWriter(self.home, clock, lambda _: self.journal)

    @property
    def records(self) -> list[AnyRecord]:
        """Return all records so far, oldest first."""
        lines = (line for written in self.journal.lines for line in written.splitlines())
        return [parse_line(line) for line in lines]

    @property
    def spans(self) -> list[SpanOpen]:
        """The program's spans, in the order in which they were opened."""
        opened: dict[str, SpanOpen] = {}
        for record in self.records:
            if isinstance(record, SpanOpen) and record.component != OWN_COMPONENT:
                opened.setdefault(record.span_id, record)  # An opening may be written again.
        return list(opened.values())

    @property
    def logs(self) -> list[Log]:
        return [record for record in self.records if isinstance(record, Log)]

    def close_of(self, span_id: str) -> SpanClose | None:
        """Return the end of a span, or None while it is open."""
        for record in self.records:
            if isinstance(record, SpanClose) and record.span_id == span_id:
                return record
        return None
