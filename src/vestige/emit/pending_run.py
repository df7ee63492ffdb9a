"""A run that opens only if something is recorded inside: one request of many, one task.

pending = PendingRun(lambda: "POST /refund")
with pending.active():
    handle(request)             # Recorded work opens the run.
pending.end(error)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vestige.emit import context
from vestige.emit.span import Span
from vestige.record.types import Link


class PendingRun:
    """The run of one piece of work. Its first recorded span opens it, in any thread or task."""

    def __init__(
        self,
        name: Callable[[], str],
        attributes: Mapping[str, Any] | None = None,
        caller: str | None = None,
    ) -> None:
        self._name = name
        self._attributes = attributes
        self._caller = caller
        """`run_id/span_id` of the span that caused this work."""
        self._lock = threading.Lock()
        self.span: Span | None = None
        self._ended = False

    def open(self) -> Span | None:
        """Return the run, opened when first needed. None after its end."""
        if self.span is None and not self._ended:
            with self._lock:
                if self.span is None:
                    token = context.PENDING.set(None)
                    try:
                        self.span = self._open()
                    finally:
                        context.leave(token)
        return None if self._ended else self.span

    def _open(self) -> Span:
        try:
            name = self._name()
        except Exception:  # noqa: BLE001  # a version of the service that names it otherwise
            name = "request"
        span = context.default().run(name, None, self._attributes)
        run_id, _, span_id = (self._caller or "").partition("/")
        if run_id and span_id and not span.muted:
            span._update({}, [Link(span_id, run_id, "called by")])
        return span

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record inside this run what has no nearer span."""
        token = context.PENDING.set(self)
        outer = context.SPAN.set(None)
        try:
            yield
        finally:
            context.leave(outer)
            context.leave(token)

    def end(
        self,
        error: BaseException | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        status: str | None = None,
    ) -> None:
        """End the run if it was opened. Work that goes on belongs to the process."""
        span, self._ended = self.span, True
        if span is not None and not span.ended:
            span.end(error, attributes, status=status)
