"""Hook for httpx and httpx2: their network transports, sync and async.

Transports are below redirects, authentication and retries, so each attempt is one exchange. HTTP/2,
proxies and mounts use them too. Other transports (mocks, ASGI) do not reach the network and are not
hooked. The two packages are one code base under two names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vestige.wire import call_selection
from vestige.wire.call_selection import begin
from vestige.wire.http_exchange import Exchange
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.patching import Patch

if TYPE_CHECKING:
    from vestige.wire.replaying.response_player import Answer

Call = Callable[[Any, Any], Any]


def install(module: ModuleType) -> Callable[[], None]:
    """Hook httpx or httpx2, and return a function that unhooks it."""
    tees = _Tees(module)
    patch = Patch()
    patch.wrap(module.HTTPTransport, "handle_request", lambda call: _sync(call, tees))
    patch.wrap(module.AsyncHTTPTransport, "handle_async_request", lambda call: _async(call, tees))
    return patch.undo


def _sync(call: Call, tees: _Tees) -> Call:
    def handle_request(transport: Any, request: Any) -> Any:
        exchange = _begin(request, tees)
        if exchange is None:
            return call(transport, request)
        stream = request.stream
        if exchange.request.body is None:
            request.stream = tees.Request(stream, exchange)
        try:
            response = tees.played(exchange, request.stream) or call(
                transport, tees.changed(exchange, request)
            )
        except BaseException as error:
            exchange.failed(error)
            raise
        finally:
            request.stream = stream
        _answered(exchange, response)
        response.stream = tees.Response(response.stream, exchange)
        return response

    return handle_request


def _async(call: Call, tees: _Tees) -> Call:
    async def handle_async_request(transport: Any, request: Any) -> Any:
        exchange = _begin(request, tees)
        if exchange is None:
            return await call(transport, request)
        stream = request.stream
        if exchange.request.body is None:
            request.stream = tees.AsyncRequest(stream, exchange)
        try:
            if call_selection.player is not None and exchange.request.body is None:
                async for _ in request.stream:
                    pass
            response = tees.played(exchange, ()) or await call(
                transport, tees.changed(exchange, request)
            )
        except BaseException as error:
            exchange.failed(error)
            raise
        finally:
            request.stream = stream
        _answered(exchange, response)
        response.stream = tees.AsyncResponse(response.stream, exchange)
        return response

    return handle_async_request


def _begin(request: Any, tees: _Tees) -> Exchange | None:
    try:
        url = request.url
        host = url.netloc.decode("ascii", "replace")
        path = url.raw_path.decode("ascii", "replace").partition("?")[0]
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw
        ]
        stream = request.stream
        # Only a ByteStream can be read more than once.
        body = b"".join(stream) if type(stream) is tees.byte_stream else None
        outgoing = OutgoingRequest(
            request.method, str(url), host.rpartition("@")[2], path, headers, body
        )
    except Exception:  # noqa: BLE001  # an unreadable request is not recorded
        return None
    return begin(outgoing)


def _answered(exchange: Exchange, response: Any) -> None:
    try:
        raw = response.headers.raw
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        raw_version = response.extensions.get("http_version", b"")
        version = raw_version.decode("ascii", "replace") if isinstance(raw_version, bytes) else None
        exchange.answered(response.status_code, headers, version=version)
    except Exception as error:  # noqa: BLE001  # the program gets the response all the same
        exchange.give_up(error)


class _Tees:
    """Stream classes that record what passes. They derive from the module's own, which it checks.

    They use iterators and not generators, so that dropping, closing or cancelling reaches the
    wrapped stream unchanged.
    """

    def __init__(self, module: ModuleType) -> None:
        self.byte_stream = module.ByteStream
        sync_kind: Any = module.SyncByteStream
        async_kind: Any = module.AsyncByteStream

        class Request(sync_kind):  # type: ignore[misc]  # known when the module is
            def __init__(self, inner: Any, exchange: Exchange) -> None:
                self._inner, self._exchange = inner, exchange

            def __iter__(self) -> Iterator[bytes]:
                return _Sending(iter(self._inner), self._exchange)

            def close(self) -> None:
                self._inner.close()

        class AsyncRequest(async_kind):  # type: ignore[misc]
            def __init__(self, inner: Any, exchange: Exchange) -> None:
                self._inner, self._exchange = inner, exchange

            def __aiter__(self) -> AsyncIterator[bytes]:
                return _AsyncSending(self._inner.__aiter__(), self._exchange)

            async def aclose(self) -> None:
                await self._inner.aclose()

        class Response(sync_kind):  # type: ignore[misc]
            def __init__(self, inner: Any, exchange: Exchange) -> None:
                self._inner, self._exchange = inner, exchange

            def __iter__(self) -> Iterator[bytes]:
                return _Receiving(iter(self._inner), self._exchange)

            def close(self) -> None:
                try:
                    self._inner.close()
                finally:
                    self._exchange.closed()

            def __del__(self) -> None:
                self._exchange.closed()

        class AsyncResponse(async_kind):  # type: ignore[misc]
            def __init__(self, inner: Any, exchange: Exchange) -> None:
                self._inner, self._exchange = inner, exchange

            def __aiter__(self) -> AsyncIterator[bytes]:
                return _AsyncReceiving(self._inner.__aiter__(), self._exchange)

            async def aclose(self) -> None:
                try:
                    await self._inner.aclose()
                finally:
                    self._exchange.closed()

            def __del__(self) -> None:
                self._exchange.closed()

        class Played(sync_kind, async_kind):  # type: ignore[misc]
            """A recorded body, in its original chunks."""

            def __init__(self, answer: Answer, error: Exception | None) -> None:
                self._answer, self._error = answer, error

            def __iter__(self) -> Iterator[bytes]:
                yield from self._answer.chunks()
                if self._error is not None:
                    raise self._error

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for chunk in self:
                    yield chunk

        self._module = module
        self._Played = Played
        self.Request, self.AsyncRequest = Request, AsyncRequest
        self.Response, self.AsyncResponse = Response, AsyncResponse

    def played(self, exchange: Exchange, stream: Iterable[bytes]) -> Any:
        """Return the recorded response in a replay. None: the request is to be sent."""
        if call_selection.player is None:
            return None
        if exchange.request.body is None:
            for _ in stream:
                pass
        answer = call_selection.play(exchange)
        if answer is None:
            return None
        error = None
        if answer.error is not None:
            kind: Any = getattr(self._module, answer.error, None)
            if not (isinstance(kind, type) and issubclass(kind, self._module.TransportError)):
                kind = self._module.ReadError
            error = kind("vestige replay: as recorded")
        if answer.status is None:
            raise error or self._module.ReadError("vestige replay: no answer was recorded")
        return self._module.Response(
            answer.status,
            headers=answer.replay_headers(),
            stream=self._Played(answer, error),
            extensions={"http_version": b"HTTP/1.1"},
        )

    def changed(self, exchange: Exchange, request: Any) -> Any:
        """Return the request to send: the program's, unless a fork has changed its body."""
        if not exchange.request.is_changed:
            return request
        framing = (b"content-length", b"transfer-encoding")
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in framing]
        return self._module.Request(
            request.method,
            request.url,
            headers=headers,
            content=exchange.request.body,
            extensions=request.extensions,
        )


class _Sending:
    def __init__(self, inner: Iterator[bytes], exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._inner)
        except StopIteration:
            self._exchange.sent()
            raise
        self._exchange.sending(chunk)
        return chunk


class _AsyncSending:
    def __init__(self, inner: AsyncIterator[bytes], exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._inner.__anext__()
        except StopAsyncIteration:
            self._exchange.sent()
            raise
        self._exchange.sending(chunk)
        return chunk


class _Receiving:
    def __init__(self, inner: Iterator[bytes], exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._inner)
        except StopIteration:
            self._exchange.finished()
            raise
        except BaseException as error:
            self._exchange.failed(error)
            raise
        self._exchange.received(chunk)
        return chunk


class _AsyncReceiving:
    def __init__(self, inner: AsyncIterator[bytes], exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._inner.__anext__()
        except StopAsyncIteration:
            self._exchange.finished()
            raise
        except BaseException as error:
            self._exchange.failed(error)
            raise
        self._exchange.received(chunk)
        return chunk
