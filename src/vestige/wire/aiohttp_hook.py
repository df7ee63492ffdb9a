"""aiohttp: one attempt, from the connector to the end of the response's stream.

Redirects and the retry of a stale connection are above the connector, so each is one exchange. aiohttp
undoes content codings while it parses, so the bytes told are plain ones; they are told as they arrive,
whether or not the program has read them yet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vestige.emit.exceptions import status_of
from vestige.errors import AgentDbgGuardrailExceeded
from vestige.wire import dispatch
from vestige.wire.dispatch import begin
from vestige.wire.exchange import Exchange
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.patching import Patch

Call = Callable[..., Any]

_EXCHANGE = "_vestige_exchange"

_streams: dict[int, Exchange] = {}
"""Streams that are arriving, by id: the class has slots, and no room for one more attribute."""


def install(module: ModuleType) -> Callable[[], None]:
    """Hook it; gives what undoes it."""
    from aiohttp import client_reqrep, streams

    patch = Patch()
    try:
        request: Any = client_reqrep.ClientRequest
        response: Any = client_reqrep.ClientResponse
        told = _told_stream(streams.StreamReader)
        patch.wrap(module.BaseConnector, "connect", _connect)
        patch.wrap(request, "send", _send)
        patch.wrap(request, "write_bytes", _write_bytes)
        patch.wrap(response, "start", lambda call: _start(call, streams.StreamReader, told))
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
            if dispatch.player is not None:
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
        ask = OutgoingRequest(req.method, str(url), host, url.raw_path, headers, _body(req))
        ask.plain = bool(req.compress)
    except Exception:  # noqa: BLE001  # a request that we cannot read is not recorded
        return None
    return begin(ask)


def _body(req: Any) -> bytes | None:
    """None: known only once it is sent."""
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
        if dispatch.player is not None:
            await req.close()  # a body that is sent piece by piece is out by then
            _play(exchange, args[0].protocol)
        return response

    return send


def _write_bytes(call: Call) -> Call:
    async def write_bytes(req: Any, writer: Any, *args: Any, **kwargs: Any) -> Any:
        exchange: Exchange | None = req.__dict__.get(_EXCHANGE)
        if exchange is None or exchange.ask.body is not None:
            return await call(req, writer, *args, **kwargs)
        return await call(req, _Writer(writer, exchange), *args, **kwargs)

    return write_bytes


class _Writer:
    """aiohttp's writer, told about what is written."""

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
    """A connection that leads nowhere: its protocol is fed with what was recorded."""
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

    answer = dispatch.play(exchange)
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
    headers = [(name, value) for name, value in answer.told_headers() if name != "content-length"]
    length = len(answer.body) + (1 if error is not None else 0)  # cut: one byte never comes
    head = [f"HTTP/1.1 {answer.status} replayed", f"content-length: {length}"]
    head += [f"{name}: {value}" for name, value in headers]
    protocol.data_received("\r\n".join([*head, "", ""]).encode("utf-8") + answer.body)
    if error is not None:
        protocol.connection_lost(error)


# --- the response ---------------------------------------------------------------------------------


def _start(call: Call, stream_kind: type, told_kind: type) -> Call:
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
            _answered(exchange, response, stream_kind, told_kind)
        except Exception as error:  # noqa: BLE001  # the response goes on its way all the same
            exchange.give_up(error)
        return started

    return start


def _answered(exchange: Exchange, response: Any, stream_kind: type, told_kind: type) -> None:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response._raw_headers
    ]
    version = f"HTTP/{response.version.major}.{response.version.minor}"
    exchange.answered(response.status, headers, decoded=True, version=version)
    content = response.content
    if not _is_plain(content, stream_kind):
        exchange.finished()  # no body
        return
    for chunk in content._buffer:  # what came together with the headers
        exchange.received(chunk)
    broken = content.exception()
    if broken is not None:  # the body came with the headers, and is not what they say
        exchange.failed(broken)
        return
    if content.is_eof():
        exchange.finished()
        return
    _streams[id(content)] = exchange
    content.__class__ = told_kind


def _is_plain(content: Any, kind: type) -> bool:
    return type(content) is kind


def _told_stream(kind: Any) -> type:
    """The stream's own class, told about what arrives. No slots: an instance can change into it."""

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
                limit = None if exchange is None else _limit_passed(exchange.finished)
                if limit is not None:
                    super().set_exception(limit)  # first: the end wakes whoever waits for it
            finally:
                super().feed_eof()

        def set_exception(self, exc: Any, *args: Any, **kwargs: Any) -> None:
            exchange = _streams.get(id(self))
            if exchange is not None and not _is_leaving(exc):
                del _streams[id(self)]
                error = exc() if isinstance(exc, type) else exc
                exc = _limit_passed(lambda: exchange.failed(error)) or exc
            super().set_exception(exc, *args, **kwargs)

    StreamReader.__qualname__ = kind.__qualname__
    StreamReader.__module__ = kind.__module__
    return StreamReader


def _limit_passed(tell: Callable[[], None]) -> BaseException | None:
    """A guardrail. This is the event loop, which would only log it: whoever reads is to be stopped."""
    try:
        tell()
    except AgentDbgGuardrailExceeded as limit:
        return limit
    return None


def _is_leaving(error: BaseException) -> bool:
    """What a response says to its stream when the program is done with it."""
    from aiohttp import client_reqrep

    return error is getattr(client_reqrep, "_CONNECTION_CLOSED_EXCEPTION", None)


def _leave(call: Call) -> Call:
    """Of `close` and `release`: the program is done, perhaps before the end."""

    def leave(response: Any) -> Any:
        exchange: Exchange | None = response.__dict__.get(_EXCHANGE)
        left = call(response)
        if exchange is not None and not exchange.over:
            _streams.pop(id(response.content), None)
            error = sys.exc_info()[1]
            # Read under a timeout that struck, or in a task that is cancelled: that is the reason.
            if error is not None and status_of(error) in ("timeout", "cancelled"):
                exchange.failed(error)
            else:
                exchange.closed()
        return left

    return leave


def _drop(call: Call) -> Call:
    """Of `__del__`: a response that nobody closed. Its stream is told nothing, and would wait for ever."""

    def drop(response: Any, *args: Any, **kwargs: Any) -> None:
        exchange: Exchange | None = response.__dict__.get(_EXCHANGE)
        try:
            call(response, *args, **kwargs)
        finally:
            if exchange is not None and not exchange.over:
                _streams.pop(id(response.content), None)
                exchange.closed()

    return drop
