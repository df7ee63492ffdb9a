"""Ask and Place: a request that is about to leave, and the span that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.emit.emitter import Emitter

Headers = Sequence[tuple[str, str]]


class SpanContext:
    """Where a call belongs: under a span, or under the process."""

    __slots__ = ("component", "emitter", "parent_id", "run_id")

    def __init__(
        self, emitter: Emitter, run_id: str, parent_id: str | None, component: str
    ) -> None:
        self.emitter = emitter
        self.run_id = run_id
        self.parent_id = parent_id
        self.component = component


class OutgoingRequest:
    """A request, as the client is about to send it."""

    __slots__ = ("body", "headers", "host", "method", "path", "plain", "url")

    def __init__(
        self, method: str, url: str, host: str, path: str, headers: Headers, body: bytes | None
    ) -> None:
        self.method = method
        self.url = url
        self.host = host
        """With its port, if it is no default one."""
        self.path = path
        """Without the query."""
        self.headers = headers
        self.body = body
        """None: not known before it is sent."""
        self.plain = False
        """The body is given without the coding that the headers name."""
