"""The calls on one connection of the proxy, recorded as the hooks of HTTP clients record theirs."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.limits import BODY_MAX
from vestige.wire import call_selection
from vestige.wire.byte_buffer import ByteBuffer
from vestige.wire.header_redaction import find_header
from vestige.wire.http_exchange import Exchange
from vestige.wire.outgoing_request import OutgoingRequest, SpanContext

Headers = Sequence[tuple[str, str]]


class Calls:
    """Creates the calls of one connection."""

    def __init__(self, origin: str, context: SpanContext) -> None:
        """`origin`: scheme and host, with the port unless it is the default."""
        self.origin = origin
        self.host = origin.partition("://")[2]
        self.context = context

    def start(self, method: str, path: str, headers: Headers) -> Call:
        return Call(self, method, path, headers)


class Call:
    """A request and its response, recorded if it is a model call (wire/call_selection.py)."""

    def __init__(self, calls: Calls, method: str, path: str, headers: Headers) -> None:
        self._calls = calls
        self._method, self._path = method, path
        self._headers = [pair for pair in headers if not pair[0].lower().startswith("proxy-")]
        self._body = ByteBuffer(BODY_MAX)
        self._exchange: Exchange | None = None
        self._is_sent = False
        self.response_headers: Headers = ()

    def sending(self, chunk: bytes) -> None:
        if not self._is_sent:
            self._body.add(chunk, 0)

    def sent(self) -> None:
        """Start the recording: the request is complete, or its response has begun."""
        if self._is_sent:
            return
        self._is_sent = True
        if find_header(self._headers, "upgrade") is None:
            self._begin(self._method, bytes(self._body.data))
        self._body = ByteBuffer()

    def _begin(self, method: str, body: bytes) -> None:
        calls = self._calls
        request = OutgoingRequest(
            method,
            calls.origin + self._path,
            calls.host,
            self._path.partition("?")[0],
            self._headers,
            body,
        )
        self._exchange = call_selection.begin(request, calls.context)

    def again(self, body: bytes) -> Call:
        """Return the call of a request that was sent as a message of this WebSocket."""
        call = Call(self._calls, "POST", self._path, self._headers)
        call._is_sent = True
        call._begin("POST", body)
        if call._exchange is not None:
            call._exchange.answered(101, self.response_headers, version="websocket")
        return call

    def answered(self, status: int, headers: Headers, version: str | None = None) -> None:
        self.sent()
        self.response_headers = headers
        if self._exchange is not None:
            self._exchange.answered(status, headers, version=version)

    def received(self, chunk: bytes) -> None:
        if self._exchange is not None:
            self._exchange.received(chunk)

    def finished(self) -> None:
        if self._exchange is not None:
            self._exchange.finished()

    def closed(self, error: Exception | None) -> None:
        """End the recording of a call whose connection was closed."""
        if self._exchange is None:
            return
        if error is not None:
            self._exchange.failed(error)
        else:
            self._exchange.closed()
