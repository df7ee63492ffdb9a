"""The state that the loggers and spans of one recorder share: ids, clock, and `send`.

An emitter creates ids and passes complete records to `send`. It does not know the
journal: the recorder connects it (recorder.py), and a test connects a list.

Nothing here raises into the program that is being recorded. Failures are counted
in `faults` by name, and the recorder reports the counts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vestige._runtime.clock import Clock
from vestige.limits import CONVERSATIONS_TRACKED_MAX
from vestige.record.coercion import PLAIN, flat_attributes
from vestige.record.types import (
    LEVELS,
    Attributes,
    BodyInfo,
    KnownRecord,
    SpanClose,
    SpanOpen,
)

if TYPE_CHECKING:
    from vestige.emit.span import Span

PreparedBody = tuple[str | None, BodyInfo | None]
PrepareBody = Callable[[Any, int], PreparedBody]
"""Turn any value and the seq of its record into the parts of the line (recorder.py)."""

LEVEL_RANK: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}
NO_ATTRIBUTES: Attributes = {}


Bytes = bytes | bytearray


def _ignore(*_: object) -> None:
    pass


def _unchanged(body: Bytes) -> Bytes:
    return body


class PendingStream(Protocol):
    """A response that is still arriving."""

    def closed(self) -> None: ...

    def flush(self) -> None: ...


class Emitter:
    """The writer id and clock of a recorder, and the functions that take its records."""

    __slots__ = (
        "conversations",
        "faults",
        "keep_partial",
        "level_rank",
        "monotonic_ns",
        "now_ns",
        "open_span",
        "open_spans",
        "prepare_body",
        "process_run_id",
        "process_span_id",
        "redact",
        "redact_stream",
        "register_secret",
        "run_id",
        "sample",
        "send",
        "send_both",
        "seq",
        "span_id",
        "unfinished",
        "writer",
    )

    def __init__(
        self,
        clock: Clock,
        send: Callable[[KnownRecord], None],
        prepare_body: PrepareBody,
        open_span: type[Span],
        *,
        level: str = "debug",
        sample: float = 1.0,
        send_both: Callable[[SpanOpen, SpanClose], None] | None = None,
    ) -> None:
        self.now_ns = clock.now_ns
        self.monotonic_ns = clock.monotonic_ns
        self.span_id = clock.span_id
        self.run_id = clock.run_id
        self.send = send
        self.send_both = send_both or self._send_separately
        self.prepare_body = prepare_body
        self.open_span = open_span
        """The class of spans. `Logger.span` uses it: span.py imports logger.py."""
        self.level_rank = LEVEL_RANK[level]
        self.sample = sample
        self.faults: Counter[str] = Counter()
        # The recorder replaces the following four.
        self.register_secret: Callable[[str], None] = _ignore
        """Add a secret to the redaction."""
        self.redact: Callable[[str], str] = str
        """Redact a text as it would be written."""
        self.redact_stream: Callable[[Bytes], Bytes] = _unchanged
        """Redact a streamed body, also secrets that are split over several events."""
        self.keep_partial: Callable[[str, Bytes | None], None] = _ignore
        """Store the part of a span's body that has arrived in a file that survives this process.

        None removes the file: the body is in the journal.
        """
        self.begin("", itertools.count(1))

    def begin(self, writer: str, seq: Iterator[int]) -> None:
        """Set the writer id and the sequence: on creation, and again in a forked child."""
        self.writer = writer
        self.seq = seq
        self.open_spans: dict[str, Span] = {}
        self.conversations: dict[str, str] = {}
        """Conversations of the newest runs that have one, by run id."""
        self.unfinished: set[PendingStream] = set()
        """Responses that are still arriving. The program may never read the rest."""
        self.process_run_id = ""
        self.process_span_id: str | None = None

    def note_conversation(self, run_id: str, conversation_id: str) -> None:
        self.conversations[run_id] = conversation_id
        if len(self.conversations) > CONVERSATIONS_TRACKED_MAX:
            del self.conversations[next(iter(self.conversations))]

    def conversation_attributes(self, source_run: str | None, target_run: str) -> dict[str, str]:
        """Return the conversations of cause and effect, if they are known and differ."""
        source = self.conversations.get(source_run or target_run)
        target = self.conversations.get(target_run)
        if source is None or target is None or source == target:
            return {}
        return {"source.conversation_id": source, "target.conversation_id": target}

    def _send_separately(self, opened: SpanOpen, closed: SpanClose) -> None:
        self.send(opened)
        self.send(closed)

    def finish(self) -> None:
        """Record partially received responses before the process exits."""
        for stream in list(self.unfinished):
            stream.closed()

    def flush(self) -> None:
        """Store partially received responses, in case this process is killed."""
        for stream in list(self.unfinished):
            stream.flush()

    def fault(self, reason: str) -> None:
        """Count a misuse or an internal failure. The program continues."""
        self.faults[reason] += 1

    def attributes(self, values: Mapping[str, Any] | None) -> Attributes:
        """Convert a caller's attributes to values that can be written."""
        if values is None:
            return NO_ATTRIBUTES
        try:
            # The common case, inlined: another call would cost as much as the loop.
            if type(values) is dict:
                for key, value in values.items():
                    if type(key) is not str or type(value) not in PLAIN:
                        break
                else:
                    return values
            return flat_attributes(values)
        except Exception:  # noqa: BLE001  # the caller's mapping runs the caller's code
            self.fault("attributes could not be read")
            return {"vestige.unreadable_attributes": type(values).__name__}
