"""Hook for urllib3, and with it requests: attempts of a connection pool and their responses.

`_make_request` is one attempt; retries and redirects are above it. The body is recorded as it is
read from the socket, before it is decoded. The hook uses private names of urllib3. If a version
lacks one, nothing is hooked, and that is counted.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from http.client import IncompleteRead
from types import ModuleType, TracebackType
from typing import Any

from vestige.wire import call_selection
from vestige.wire.call_selection import begin
from vestige.wire.http_exchange import Exchange
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.patching import Patch

Call = Callable[..., Any]

_PENDING: ContextVar[Exchange | None] = ContextVar("vestige_urllib3", default=None)
"""The current attempt. Its response may be read before `_make_request` returns it."""

_EXCHANGE = "_vestige_exchange"


def install(module: ModuleType) -> Callable[[], None]:
    """Hook urllib3, and return a function that unhooks it. Raises for version 1.x."""
    from urllib3 import connection, connectionpool, response

    patch = Patch()
    try:
        pool: Any = connectionpool.HTTPConnectionPool
        kind: Any = response.HTTPResponse
        patch.wrap(connection, "body_to_chunks", _body_to_chunks)
        patch.wrap(kind, "_fp_read", _reading)
        patch.wrap(kind, "_handle_chunk", _reading)
        patch.wrap(kind, "_error_catcher", _error_catcher)
        patch.wrap(kind, "close", _close)
        patch.wrap(pool, "_make_request", _make_request)
    except Exception:
        patch.undo()
        raise
    return patch.undo


def _make_request(call: Call) -> Call:
    def make_request(pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        body = args[0] if args else kwargs.get("body")
        headers = args[1] if len(args) > 1 else kwargs.get("headers")
        exchange = _begin(pool, method, url, body, headers)
        token = _PENDING.set(exchange)
        try:
            response = None
            if exchange is not None and call_selection.player is not None:
                response = _played(exchange, pool, method, url, body, kwargs)
            if response is None:
                if exchange is not None and exchange.request.is_changed:
                    args = (exchange.request.body, _changed_headers(exchange), *args[2:])
                    kwargs = {k: v for k, v in kwargs.items() if k not in ("body", "headers")}
                response = call(pool, conn, method, url, *args, **kwargs)
            _exchange_of(response)
        except BaseException as error:
            if exchange is not None:
                exchange.failed(error)
            raise
        finally:
            _PENDING.reset(token)
        return response

    return make_request


def _changed_headers(exchange: Exchange) -> Any:
    """Return the headers for a body that a fork has changed."""
    from urllib3 import HTTPHeaderDict

    framing = ("content-length", "transfer-encoding")
    request = exchange.request
    headers = HTTPHeaderDict(pair for pair in request.headers if pair[0].lower() not in framing)
    headers["Content-Length"] = str(len(request.body or b""))
    return headers


def _played(
    exchange: Exchange, pool: Any, method: str, url: str, body: Any, options: dict[str, Any]
) -> Any:
    """Return the recorded response in a replay. None: the request is to be sent."""
    from urllib3 import HTTPHeaderDict
    from urllib3.exceptions import ProtocolError, ReadTimeoutError
    from urllib3.response import HTTPResponse
    from urllib3.util.request import body_to_chunks

    if exchange.request.body is None:
        for _ in _Sending(body_to_chunks(body, method, 16384).chunks or (), exchange):
            pass
    answer = call_selection.play(exchange)
    if answer is None:
        return None
    error: Exception | None = None
    if answer.error is not None and "Timeout" in answer.error:
        error = ReadTimeoutError(pool, url, "vestige replay: as recorded")
    elif answer.error is not None or answer.status is None:
        error = ProtocolError(
            "Connection aborted.", ConnectionResetError("vestige replay: as recorded")
        )
    if error is not None and (answer.status is None or options.get("preload_content", True)):
        raise error
    response = HTTPResponse(
        _Body(answer.body, error),
        headers=HTTPHeaderDict(answer.replay_headers()),
        status=answer.status or 0,
        version=11,
        version_string="HTTP/1.1",
        reason=http.client.responses.get(answer.status or 0),
        preload_content=options.get("preload_content", True),
        decode_content=options.get("decode_content", True),
        retries=options.get("retries"),
        request_method=method,
        request_url=url,
        enforce_content_length=error is None,
    )
    response._pool, response._connection = pool, options.get("response_conn")
    return response


class _Body(io.BytesIO):
    """A recorded body that ends with the recorded error, if there is one."""

    def __init__(self, body: bytes, error: Exception | None) -> None:
        super().__init__(body)
        self._error = error

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if not data and self._error is not None:
            raise self._error
        return data

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(-1 if size is None else size)


def _begin(pool: Any, method: str, url: str, body: Any, headers: Any) -> Exchange | None:
    try:
        host = pool.host if pool.port in (None, 80, 443) else f"{pool.host}:{pool.port}"
        full_url = url if "://" in url else f"{pool.scheme}://{host}{url}"
        path = url.partition("://")[2].partition("/")[2] if "://" in url else url
        request = OutgoingRequest(
            method,
            full_url,
            host,
            "/" + path.partition("?")[0].lstrip("/"),
            [(_text(name), _text(value)) for name, value in (headers or {}).items()],
            _bytes(body),
        )
    except Exception:  # noqa: BLE001  # an unreadable request is not recorded
        return None
    return begin(request)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _bytes(body: Any) -> bytes | None:
    """Return the body. None: a file or an iterator, known only once it is sent."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else None


def _body_to_chunks(call: Call) -> Call:
    def body_to_chunks(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        exchange = _PENDING.get()
        if exchange is None or exchange.request.body is not None or result.chunks is None:
            return result
        return result._replace(chunks=_Sending(result.chunks, exchange))

    return body_to_chunks


class _Sending:
    """An iterable that records the chunks of a request body."""

    def __init__(self, chunks: Iterable[Any], exchange: Exchange) -> None:
        self._chunks, self._exchange = chunks, exchange

    def __iter__(self) -> Iterator[Any]:
        for chunk in _unhooked(iter(self._chunks)):
            try:
                data = chunk.encode() if isinstance(chunk, str) else bytes(chunk)
                self._exchange.sending(data)
            except Exception as error:  # noqa: BLE001  # urllib3 raises for an invalid chunk
                self._exchange.give_up(error)
            yield chunk
        self._exchange.sent()


def _unhooked(chunks: Iterator[Any]) -> Iterator[Any]:
    """Yield chunks from the program's code, which may read other responses meanwhile."""
    while True:
        token = _PENDING.set(None)
        try:
            chunk = next(chunks)
        except StopIteration:
            return
        finally:
            _PENDING.reset(token)
        yield chunk


def _exchange_of(response: Any) -> Exchange | None:
    """Return the exchange of a response. An attempt's first response belongs to it."""
    known: Exchange | None = response.__dict__.get(_EXCHANGE)
    if known is not None:
        return known
    pending = _PENDING.get()
    if pending is None:
        return None
    response.__dict__[_EXCHANGE] = pending
    try:
        version = getattr(response, "version_string", None)
        pending.answered(response.status, list(response.headers.items()), version=version)
    except Exception as error:  # noqa: BLE001  # the program gets the response all the same
        pending.give_up(error)
    return pending


def _reading(call: Call) -> Call:
    """Wrap `_fp_read` and `_handle_chunk`, which return bytes as they arrived."""

    def read(response: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = _exchange_of(response)
        if exchange is None:
            return call(response, *args, **kwargs)
        try:
            data = call(response, *args, **kwargs)
        except IncompleteRead as error:
            exchange.received(error.partial)
            raise
        if data:
            exchange.received(data)
        return data

    return read


def _error_catcher(call: Call) -> Call:
    def error_catcher(response: Any) -> AbstractContextManager[None]:
        inner: AbstractContextManager[None] = call(response)
        exchange = _exchange_of(response)
        return inner if exchange is None else _Watched(inner, response, exchange)

    return error_catcher


class _Watched:
    """A proxy of urllib3's guard around every read, which records how the read ended."""

    def __init__(
        self, inner: AbstractContextManager[None], response: Any, exchange: Exchange
    ) -> None:
        self._inner, self._response, self._exchange = inner, response, exchange

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            swallowed = self._inner.__exit__(kind, error, trace)
        except BaseException as raised:
            self._exchange.failed(raised)
            raise
        if isinstance(error, GeneratorExit):
            self._exchange.closed()
        elif error is not None:
            self._exchange.failed(error)
        else:
            original = self._response._original_response
            if original is not None and original.isclosed():
                self._exchange.finished()
        return swallowed


def _close(call: Call) -> Call:
    def close(response: Any) -> None:
        exchange = response.__dict__.get(_EXCHANGE)
        try:
            call(response)
        finally:
            if exchange is not None:
                exchange.closed()

    return close
