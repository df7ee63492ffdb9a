"""Hook for aiohttp: from the connector to the end of the response's stream.

Redirects and retries of a stale connection happen above the connector, so each attempt is one
exchange. aiohttp decodes content codings while it parses, so the recorded bytes are decoded. They
are recorded as they arrive, whether or not the program has read them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vestige.emit.exception_attributes import status_of
from vestige.errors import AgentDbgGuardrailExceeded
from vestige.wire import call_selection
from vestige.wire.call_selection import begin
from vestige.wire.http_exchange import Exchange
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.patching import Patch

Call = Callable[..., Any]

_EXCHANGE = "_vestige_exchange"

_streams: dict[int, Exchange] = {}
"""Active streams by id: the class has slots, so the exchange cannot be an attribute."""


def install(module: ModuleType) -> Callable[[], None]:
    """Hook aiohttp, and return a function that unhooks it."""
    from aiohttp import client_reqrep, streams

    patch = Patch()
    try:
        request: Any = client_reqrep.ClientRequest
        response: Any = client_reqrep.ClientResponse
        recorded = _make_recorded_stream(streams.StreamReader)
        patch.wrap(module.BaseConnector, "connect", _connect)
        patch.wrap(request, "send", _send)
        patch.wrap(request, "write_bytes", _write_bytes)
        patch.wrap(response, "start", lambda call: _start(call, streams.StreamReader, recorded))
        patch.wrap(response, "close", _leave)
        patch.wrap(response, "release", _leave)
        patch.wrap(response, "__del__", _drop)
    except Exception:
        patch.undo()
        raise
    return patch.undo


# --- the request ----------------------------------------------------------------------------------


def _connect(call: Call) -> Call:
    async def connect(connector: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = _begin(req)
        if exchange is None:
            return await call(connector, req, *args, **kwargs)
        req.__dict__[_EXCHANGE] = exchange
        try:
            if exchange.request.is_changed:
                await _change_body(req, exchange.request.body or b"")
            if call_selection.player is not None and not exchange.request.is_sent:
                return _unconnected(connector, req)
            return await call(connector, req, *args, **kwargs)
        except BaseException as error:
            exchange.failed(error)
            raise

    return connect


def _begin(req: Any) -> Exchange | None:
    try:
        url = req.url
        host = url.raw_host if url.is_default_port() else f"{url.raw_host}:{url.port}"
        headers = [(str(name), str(value)) for name, value in req.headers.items()]
        outgoing = OutgoingRequest(req.method, str(url), host, url.raw_path, headers, _body(req))
        outgoing.plain = bool(req.compress)
    except Exception:  # noqa: BLE001  # an unreadable request is not recorded
        return None
    return begin(outgoing)


async def _change_body(req: Any, body: bytes) -> None:
    """Replace the body by that of a fork."""
    for name in ("Content-Length", "Transfer-Encoding"):
        req.headers.pop(name, None)
    if hasattr(req, "update_body"):
        await req.update_body(body)
    else:  # before aiohttp 3.12
        req.update_body_from_data(body)
    req.headers["Content-Length"] = str(len(body))


def _body(req: Any) -> bytes | None:
    """Return the request's body. None: it is known only once it is sent."""
    body = getattr(req, "_body", None) or getattr(req, "body", None)
    if not body and not hasattr(body, "write_with_length"):
        return b""
    value = body if isinstance(body, bytes) else getattr(body, "_value", None)
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _send(call: Call) -> Call:
    async def send(req: Any, *args: Any, **kwargs: Any) -> Any:
        exchange: Exchange | None = req.__dict__.get(_EXCHANGE)
        if exchange is None:
            return await call(req, *args, **kwargs)
        try:
            response = await call(req, *args, **kwargs)
        except BaseException as error:
            exchange.failed(error)
            raise
        response.__dict__[_EXCHANGE] = exchange
        if call_selection.player is not None and not exchange.request.is_sent:
            await req.close()  # returns once a streamed body was sent
            _play(exchange, args[0].protocol)
        return response

    return send


def _write_bytes(call: Call) -> Call:
    async def write_bytes(req: Any, writer: Any, *args: Any, **kwargs: Any) -> Any:
        exchange: Exchange | None = req.__dict__.get(_EXCHANGE)
        if exchange is None or exchange.request.body is not None:
            return await call(req, writer, *args, **kwargs)
        return await call(req, _Writer(writer, exchange), *args, **kwargs)

    return write_bytes


class _Writer:
    """A proxy of aiohttp's writer that records what is written."""

    def __init__(self, inner: Any, exchange: Exchange) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_exchange", exchange)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    async def write(self, chunk: Any, *args: Any, **kwargs: Any) -> None:
        self._exchange.sending(bytes(chunk))
        await self._inner.write(chunk, *args, **kwargs)

    async def write_eof(self, chunk: Any = b"") -> None:
        if chunk:
            self._exchange.sending(bytes(chunk))
        await self._inner.write_eof(chunk)
        self._exchange.sent()


# --- a replay -------------------------------------------------------------------------------------


def _unconnected(connector: Any, req: Any) -> Any:
    """Make a connection without a network, whose protocol receives the recorded response."""
    from asyncio import Transport

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

    class Nowhere(Transport):
        def write(self, data: Any) -> None:
            pass

        def writelines(self, list_of_data: Any) -> None:
            pass

        def is_closing(self) -> bool:
            return False

        def close(self) -> None:
            pass

        abort = close
        pause_reading = resume_reading = close

    protocol = ResponseHandler(loop=connector._loop)
    protocol.connection_made(Nowhere())
    protocol.force_close()
    return Connection(connector, req.connection_key, protocol, connector._loop)


def _play(exchange: Exchange, protocol: Any) -> None:
    import aiohttp

    answer = call_selection.play(exchange)
    if answer is None:
        return
    error: Exception | None = None
    if answer.error is not None or answer.status is None:
        timeout = "Timeout" in (answer.error or "")
        kind = aiohttp.ServerTimeoutError if timeout else aiohttp.ClientConnectionError
        error = kind("vestige replay: as recorded")
    if answer.status is None:
        assert error is not None
        raise error
    headers = [(name, value) for name, value in answer.replay_headers() if name != "content-length"]
    length = len(answer.body) + (1 if error is not None else 0)  # an error leaves one byte missing
    head = [f"HTTP/1.1 {answer.status} replayed", f"content-length: {length}"]
    head += [f"{name}: {value}" for name, value in headers]
    protocol.data_received("\r\n".join([*head, "", ""]).encode("utf-8") + answer.body)
    if error is not None:
        protocol.connection_lost(error)


# --- the response ---------------------------------------------------------------------------------


def _start(call: Call, stream_kind: type, recorded_kind: type) -> Call:
    async def start(response: Any, *args: Any, **kwargs: Any) -> Any:
        exchange: Exchange | None = response.__dict__.get(_EXCHANGE)
        if exchange is None:
            return await call(response, *args, **kwargs)
        try:
            started = await call(response, *args, **kwargs)
        except BaseException as error:
            exchange.failed(error)
            raise
        try:
            _answered(exchange, response, stream_kind, recorded_kind)
        except Exception as error:  # noqa: BLE001  # the program gets the response all the same
            exchange.give_up(error)
        return started

    return start


def _answered(exchange: Exchange, response: Any, stream_kind: type, recorded_kind: type) -> None:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response._raw_headers
    ]
    version = f"HTTP/{response.version.major}.{response.version.minor}"
    exchange.answered(response.status, headers, decoded=True, version=version)
    content = response.content
    if not _is_plain(content, stream_kind):
        exchange.finished()  # no body
        return
    for chunk in content._buffer:  # bytes that arrived together with the headers
        exchange.received(chunk)
    error = content.exception()
    if error is not None:  # these bytes do not match the headers
        exchange.failed(error)
        return
    if content.is_eof():
        exchange.finished()
        return
    _streams[id(content)] = exchange
    content.__class__ = recorded_kind


def _is_plain(content: Any, kind: type) -> bool:
    return type(content) is kind


def _make_recorded_stream(kind: Any) -> type:
    """Make a subclass that records what arrives. Empty slots let `__class__` be assigned."""

    class StreamReader(kind):  # type: ignore[misc]  # known when aiohttp is
        __slots__ = ()

        def feed_data(self, data: bytes, *args: Any, **kwargs: Any) -> Any:
            exchange = _streams.get(id(self))
            if exchange is not None and data:
                exchange.received(bytes(data))
            return super().feed_data(data, *args, **kwargs)

        def feed_eof(self) -> None:
            exchange = _streams.pop(id(self), None)
            try:
                limit = None if exchange is None else _catch_guardrail(exchange.finished)
                if limit is not None:
                    super().set_exception(limit)  # before the end, which wakes the waiting reader
            finally:
                super().feed_eof()

        def set_exception(self, exc: Any, *args: Any, **kwargs: Any) -> None:
            exchange = _streams.get(id(self))
            if exchange is not None and not _is_close_marker(exc):
                del _streams[id(self)]
                error = exc() if isinstance(exc, type) else exc
                exc = _catch_guardrail(lambda: exchange.failed(error)) or exc
            super().set_exception(exc, *args, **kwargs)

    StreamReader.__qualname__ = kind.__qualname__
    StreamReader.__module__ = kind.__module__
    return StreamReader


def _catch_guardrail(end_call: Callable[[], None]) -> BaseException | None:
    """Return a raised guardrail, for the reader. The event loop would only log it."""
    try:
        end_call()
    except AgentDbgGuardrailExceeded as limit:
        return limit
    return None


def _is_close_marker(error: BaseException) -> bool:
    """Return whether it is the error that a closed response sets on its stream."""
    from aiohttp import client_reqrep

    return error is getattr(client_reqrep, "_CONNECTION_CLOSED_EXCEPTION", None)


def _leave(call: Call) -> Call:
    """Wrap `close` and `release`, which the program may call before the end of the body."""

    def leave(response: Any) -> Any:
        exchange: Exchange | None = response.__dict__.get(_EXCHANGE)
        result = call(response)
        if exchange is not None and not exchange.over:
            _streams.pop(id(response.content), None)
            error = sys.exc_info()[1]
            # A timeout or a cancelled task is the reason why the response is closed.
            if error is not None and status_of(error) in ("timeout", "cancelled"):
                exchange.failed(error)
            else:
                exchange.closed()
        return result

    return leave


def _drop(call: Call) -> Call:
    """Wrap `__del__` of a response that was not closed. Its stream gets no end."""

    def drop(response: Any, *args: Any, **kwargs: Any) -> None:
        exchange: Exchange | None = response.__dict__.get(_EXCHANGE)
        try:
            call(response, *args, **kwargs)
        finally:
            if exchange is not None and not exchange.over:
                _streams.pop(id(response.content), None)
                exchange.closed()

    return drop
