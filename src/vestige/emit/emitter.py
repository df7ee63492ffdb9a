"""What the loggers and spans of one recorder share: identity, time, and the way out.

An emitter mints identities and hands finished records to `send`. It knows neither
the journal nor a file: the recorder wires those in (recorder.py), a test wires in
a list.

Nothing here raises into the program that is being recorded. What goes wrong is
counted in `faults` by name, and the recorder reports the counts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vestige._runtime.clock import Clock
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
"""Any value, and the seq of its record -> what goes into the line (recorder.py)."""

LEVEL_RANK: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}
NO_ATTRIBUTES: Attributes = {}


Bytes = bytes | bytearray


def _nothing(value: str) -> None:
    pass


def _same(body: Bytes) -> Bytes:
    return body


def _keep_nothing(span_id: str, body: Bytes | None) -> None:
    pass


class PendingStream(Protocol):
    """What is still told in pieces when the program ends."""

    def closed(self) -> None: ...

    def flush(self) -> None: ...


class Emitter:
    """One writer's identity and clock, and where its records go."""

    __slots__ = (
        "faults",
        "keep_partial",
        "learn",
        "level_rank",
        "monotonic_ns",
        "now_ns",
        "open_spans",
        "prepare_body",
        "process_run_id",
        "process_span_id",
        "redact",
        "redact_stream",
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
        self.send_both = send_both or self._one_by_one
        self.prepare_body = prepare_body
        self.level_rank = LEVEL_RANK[level]
        self.sample = sample
        self.faults: Counter[str] = Counter()
        self.learn: Callable[[str], None] = _nothing
        """Tell the redaction of a secret that was met (the recorder wires it in)."""
        self.redact: Callable[[str], str] = str
        """A text as it would be written (the recorder wires it in)."""
        self.redact_stream: Callable[[Bytes], Bytes] = _same
        """A streamed body without the secrets that its events spell in pieces (wired in as well)."""
        self.keep_partial: Callable[[str, Bytes | None], None] = _keep_nothing
        """What has arrived of the body of a span, in a file that survives this process; None: it is
        in the journal by now (wired in as well)."""
        self.begin("", itertools.count(1))

    def begin(self, writer: str, seq: Iterator[int]) -> None:
        """Speak as `writer`, in the order of `seq`: at birth, and again in a forked child."""
        self.writer = writer
        self.seq = seq
        self.open_spans: dict[str, Span] = {}
        self.unfinished: set[PendingStream] = set()
        """Answers that come: the rest of one may never be asked for."""
        self.process_run_id = ""
        self.process_span_id: str | None = None

    def _one_by_one(self, opened: SpanOpen, closed: SpanClose) -> None:
        self.send(opened)
        self.send(closed)

    def finish(self) -> None:
        """Goodbye is next: what came of an answer is told now, or never."""
        for each in list(self.unfinished):
            each.closed()

    def flush(self) -> None:
        """Keep what has arrived of answers, in case that this process is killed."""
        for each in list(self.unfinished):
            each.flush()

    def fault(self, what: str) -> None:
        """Count a misuse or a failure of our own; the program goes on."""
        self.faults[what] += 1

    def attributes(self, given: Mapping[str, Any] | None) -> Attributes:
        """A caller's attributes as they can be written, whatever they are."""
        if given is None:
            return NO_ATTRIBUTES
        try:
            # The common case, here because another call would cost as much as the loop.
            if type(given) is dict:
                for key, value in given.items():
                    if type(key) is not str or type(value) not in PLAIN:
                        break
                else:
                    return given
            return flat_attributes(given)
        except Exception:  # noqa: BLE001  # the caller's mapping runs the caller's code
            self.fault("attributes could not be read")
            return {"vestige.unreadable_attributes": type(given).__name__}
