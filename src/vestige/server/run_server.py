"""Serving: the socket, who may come in without a key, TLS, and an end that finishes requests.

    serve(home, "127.0.0.1", 8642, ready=print)

On loopback without keys, whoever has the printed URL comes in; its token is new at each start.
A public address is served only with keys, and with TLS unless the caller insists.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vestige._runtime import clock
from vestige.errors import UsageError
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.limits import (
    HTTP_BODY_S,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEADER_BYTES_MAX,
    HTTP_HEADER_S,
    HTTP_REFUSED_MAX,
    HTTP_SHUTDOWN_S,
    LIVE_SEND_S,
)
from vestige.server.app import make_app
from vestige.server.collector_process import CollectorProcess, prepare
from vestige.server.responses import NO_STORE, encode
from vestige.server.server_state import Server

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_server(
    home: Home,
    host: str,
    *,
    token: bool | None = None,
    names: Sequence[str] = (),
    log: Callable[[dict[str, object]], None] | None = None,
    demo_workflows: bool = False,
    body_s: float = HTTP_BODY_S,
) -> Server:
    """What is served there, to whom. `token`: None means if there are no keys."""
    local = is_loopback(host)
    has_keys = Keys(home).has_active(clock.SYSTEM.now_ns())
    if not local and not has_keys:
        raise UsageError(
            f"--host {host}: others can reach this address, and there are no keys. Make one first:"
            " `vestige keys add NAME --scope runs:read`."
        )
    if token and not local:
        raise UsageError(f"--host {host}: a token in the URL is for this machine only. Use keys.")
    if token is None:
        token = not has_keys
    hosts = frozenset(name.lower() for name in names)
    if local:
        hosts |= LOOPBACK_NAMES | {host.lower()}
    secret = clock.random_bytes(24).hex() if token else None
    return Server(
        home,
        token=secret,
        hosts=hosts or None,
        log=log,
        body_s=body_s,
        demo_workflows=demo_workflows,
    )


def serve(
    server: Server,
    host: str,
    port: int,
    *,
    cert: Path | None = None,
    key: Path | None = None,
    insecure: bool = False,
    collect: bool = True,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the URL once the socket listens."""
    _check_tls(cert, key)
    if cert is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"--host {host}: others can reach this address, and without TLS keys and runs travel in"
            " clear. Give --cert and --key; or --insecure, behind a proxy that speaks TLS."
        )
    prepare(server.home)
    _log_by(server)
    with _listening(host, port) as listening:
        server.port = listening.getsockname()[1]
        config = uvicorn.Config(
            make_app(server),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=_protocol_for(server),
            server_header=False,
            proxy_headers=False,
            ssl_certfile=cert,
            ssl_keyfile=key,
            h11_max_incomplete_event_size=HTTP_HEADER_BYTES_MAX,
            timeout_graceful_shutdown=HTTP_SHUTDOWN_S,
        )
        collecting = CollectorProcess(server.home) if collect else None
        try:
            running = _Uvicorn(config, server)
            server.connections = running.server_state.connections
            server.connections_max = _connections_max()
            server.stop = running.stop
            with running.capture_signals():  # before anybody is told where we are
                if collecting is not None:
                    collecting.start()
                ready(url(server, host, secure=cert is not None))
                running.run(sockets=[listening])
        finally:
            if collecting is not None:
                collecting.close()
            server.close()


def _connections_max() -> int:
    """As many as we want, or as the system lets us have beside the store's files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(HTTP_CONNECTIONS_MAX, files - 128))


def _log_by(server: Server) -> None:
    """What uvicorn and asyncio have to say goes where our lines go, without the bytes that it is about."""

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = str(record.msg).strip().partition("\n")[0]
            server.log({"at_ns": server.clock.now_ns(), "server": text})

    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [Told(logging.WARNING)]
        logger.propagate = False


def url(server: Server, host: str, *, secure: bool) -> str:
    scheme = "https" if secure else "http"
    name = f"[{host}]" if ":" in host else host
    query = "" if server.token is None else f"?token={server.token}"
    return f"{scheme}://{name}:{server.port}/{query}"


def _check_tls(cert: Path | None, key: Path | None) -> None:
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise UsageError("--cert and --key go together: the certificate, and its private key.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--cert {cert}, --key {key}: cannot be used ({error}).") from None


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host}: no address of this machine ({error}).") from None
    # With its protocol: asyncio looks at it before it turns off waiting for more to send, which
    # would cost every answer 40 ms.
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(1024)  # who comes before the server runs waits, and is not refused
        except OSError as error:
            raise UsageError(
                f"--host {host} --port {port}: {error.strerror}. Choose another port."
            ) from None
        yield listening


class _Uvicorn(uvicorn.Server):
    """Ends in good order: streams are told, requests are finished, and the exit code is 0."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._ours = server

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        try:
            numbers = (signal.SIGINT, signal.SIGTERM)
            before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        except ValueError:  # not the main thread: whoever started us ends us
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ours.stopping.set()
        await super().shutdown(sockets)


def _protocol_for(served: Server) -> type[_Protocol]:
    class Protocol(_Protocol):
        ours = served

    return Protocol


class _Protocol(H11Protocol):
    """Lets go of a connection whose request does not arrive, or whose answer is not taken, or that is
    one of too many; what is no HTTP gets our envelope."""

    ours: ClassVar[Server]
    _late: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _left_bytes = 0
    """Of what was sent, not taken at the last look."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        if len(self.connections) > self.ours.connections_max + HTTP_REFUSED_MAX:
            transport.abort()  # one that asks nothing is never told anything
            return
        self._watch()
        self._look = self.loop.call_later(LIVE_SEND_S, self._look_again)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # the answer is given, or begun: what follows it is of no use
            return
        body = encode({"error": "validation_error", "message": "This is no HTTP/1.1 request."})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", NO_STORE.encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """From the first byte, or from the beginning, to a whole request."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(HTTP_HEADER_S, self.transport.close)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _look_again(self) -> None:
        """A client that took nothing since the last look: to close would be to wait for it."""
        left = self.transport.get_write_buffer_size()
        if left and left == self._left_bytes:
            self.transport.abort()
            return
        self._left_bytes = left
        self._look = self.loop.call_later(LIVE_SEND_S, self._look_again)
