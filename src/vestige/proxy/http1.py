"""Read the bytes of an HTTP/1.1 connection that pass through, and record its calls.

    observer = Http1Observer(calls)
    observer.sent(data)  observer.received(data)  observer.ended()

An observer never changes the bytes. If it cannot parse them, it stops, and reports a gap.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import h11
import wsproto.frame_protocol as frames
from wsproto.extensions import PerMessageDeflate

from vestige.limits import MIB
from vestige.proxy.calls import Call, Calls

_HEAD_MAX = 256 * 1024
_MESSAGE_MAX = 16 * MIB
_ENDS = (b'"response.completed"', b'"response.failed"', b'"response.incomplete"', b'"error"')
"""Types of the message that ends a response on a WebSocket."""


class Observer(Protocol):
    def sent(self, data: bytes) -> None: ...

    def received(self, data: bytes) -> None: ...

    def ended(self, error: Exception | None = None) -> None: ...


class Http1Observer:
    """Observes one connection. Requests on it are answered in their order."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._server = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_MAX)
        self._client: h11.Connection | None = None
        self._waiting: deque[tuple[h11.Request, Call]] = deque()
        self._request: tuple[h11.Request, Call] | None = None
        self._early = b""
        self._answering: Call | None = None
        self._socket: WebSocketObserver | None = None

    def sent(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.sent(data)
            return
        self._server.receive_data(data)
        while True:
            event = self._server.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                headers = _texts(event.headers)
                target = event.target.decode("latin-1")
                call = self._calls.start(event.method.decode("latin-1"), target, headers)
                self._request = (event, call)
                self._waiting.append(self._request)
            elif isinstance(event, h11.Data) and self._request is not None:
                self._request[1].sending(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                if self._request is not None:
                    self._request[1].sent()
                self._request = None
                rest, _ = self._server.trailing_data
                # A new parser: the old one would wait for our response.
                self._server = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_MAX)
                if rest:
                    self._server.receive_data(rest)
            elif isinstance(event, h11.ConnectionClosed):
                return

    def received(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.received(data)
            return
        while data:
            if self._client is None and not self._begin_response():
                return
            assert self._client is not None
            self._client.receive_data(data)
            data = self._read_response()

    def _begin_response(self) -> bool:
        if not self._waiting:
            return False
        request, self._answering = self._waiting.popleft()
        self._answering.sent()
        self._client = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_MAX)
        names = {b"host", b"upgrade", b"connection"}
        headers = [(name, value) for name, value in request.headers if name in names]
        self._client.send(
            h11.Request(method=request.method, target=request.target, headers=headers)
        )
        self._client.send(h11.EndOfMessage())
        return True

    def _read_response(self) -> bytes:
        """Read events. Return the bytes after the end of the response."""
        assert self._client is not None and self._answering is not None
        while True:
            event = self._client.next_event()
            if event is h11.NEED_DATA:
                return b""
            if event is h11.PAUSED:  # The connection has become a WebSocket.
                rest, _ = self._client.trailing_data
                return self._upgrade(rest)
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    self._answering.answered(101, _texts(event.headers))
            elif isinstance(event, h11.Response):
                self._answering.answered(event.status_code, _texts(event.headers))
            elif isinstance(event, h11.Data):
                self._answering.received(bytes(event.data))
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                self._answering.finished()
                rest, _ = self._client.trailing_data
                self._client, self._answering = None, None
                return rest

    def _upgrade(self, rest: bytes) -> bytes:
        assert self._answering is not None
        self._socket = WebSocketObserver(self._answering)
        pending, _ = self._server.trailing_data
        if pending:
            self._socket.sent(pending)
        if rest:
            self._socket.received(rest)
        return b""

    def ended(self, error: Exception | None = None) -> None:
        if self._socket is not None:
            self._socket.ended()
        if self._client is not None and self._answering is not None:
            try:
                self._client.receive_data(b"")  # A body without a length ends here.
                self._read_response()
            except h11.ProtocolError:
                pass
        for call in [self._answering, *(call for _, call in self._waiting)]:
            if call is not None:
                call.closed(error)


class WebSocketObserver:
    """Records each request on a WebSocket, and the messages that answer it as a stream.

    A message of the type `response.create` is a request of the Responses API. Other sessions are
    one call, with the messages of both sides as events.
    """

    def __init__(self, call: Call) -> None:
        self._session = call
        deflate = next(
            (
                value
                for name, value in call.response_headers
                if name.lower() == "sec-websocket-extensions" and "permessage-deflate" in value
            ),
            None,
        )
        self._from_client = _make_parser(deflate, client=False)
        self._from_server = _make_parser(deflate, client=True)
        self._parts: dict[bool, list[Any]] = {True: [], False: []}
        self._request: Call | None = None

    def sent(self, data: bytes) -> None:
        self._from_client.receive_bytes(data)
        for message in self._messages(self._from_client, True):
            if b'"response.create"' in message[:4096]:
                self._finish_request()
                self._request = self._session.again(message)
            elif self._request is None:
                self._session.received(b"event: client\ndata: " + _one_line(message) + b"\n\n")

    def received(self, data: bytes) -> None:
        self._from_server.receive_bytes(data)
        for message in self._messages(self._from_server, False):
            call = self._request or self._session
            call.received(b"data: " + _one_line(message) + b"\n\n")
            if self._request is not None and any(end in message[:400] for end in _ENDS):
                self._finish_request()

    def _messages(self, parser: Any, client: bool) -> Any:
        parts = self._parts[client]
        for frame in parser.received_frames():
            if frame.opcode not in (frames.Opcode.TEXT, frames.Opcode.BINARY):
                continue
            payload = frame.payload
            if sum(map(len, parts)) < _MESSAGE_MAX:
                parts.append(payload.encode() if isinstance(payload, str) else bytes(payload))
            if frame.message_finished:
                yield b"".join(parts)
                parts.clear()

    def _finish_request(self) -> None:
        if self._request is not None:
            self._request.finished()
            self._request = None

    def ended(self) -> None:
        if self._request is not None:
            self._request.closed(None)
        self._session.finished()


def _make_parser(deflate: str | None, *, client: bool) -> Any:
    extensions: list[Any] = []
    if deflate is not None:
        extension = PerMessageDeflate()
        extension.finalize(deflate)
        extensions.append(extension)
    return frames.FrameProtocol(client=client, extensions=extensions)


def _one_line(message: bytes) -> bytes:
    return message.replace(b"\r", b" ").replace(b"\n", b" ")


def _texts(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
