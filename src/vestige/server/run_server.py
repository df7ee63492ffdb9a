"""Run the server: socket, TLS, connection timeouts, graceful shutdown.

    serve(make_server(home, "127.0.0.1"), "127.0.0.1", 8642, ready=print)

On loopback without keys, the printed URL contains a token. It is new at each start of `serve`; that
of `vestige ui` is the key in the home (server/viewer_instance.py). A public
address is served only with keys, and with TLS unless the caller passes `insecure`.
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
from vestige.server.collector_child import CollectorWatch, prepare
from vestige.server.otlp_grpc import GrpcEndpoint
from vestige.server.otlp_ports import OtlpPorts, read_otlp_key
from vestige.server.responses import NO_STORE, encode
from vestige.server.server_state import Server

COOKIE_S = 30 * 86400
"""Lifetime of the cookie of a lasting token."""
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
    token: bool | str | None = None,
    names: Sequence[str] = (),
    log: Callable[[dict[str, object]], None] | None = None,
    demo_workflows: bool = False,
    body_s: float = HTTP_BODY_S,
) -> Server:
    """Create the server's state. `token=None` creates a token if there are no keys.

    A token that is passed lasts longer than this server, and so does its cookie.
    """
    local = is_loopback(host)
    has_keys = Keys(home).has_active(clock.SYSTEM.now_ns())
    if not local and not has_keys:
        raise UsageError(
            f"--host {host}: other machines can reach this address, and there are no keys."
            " Create one first: `vestige server keys add NAME --scope runs:read`."
        )
    if token and not local:
        raise UsageError(f"--host {host}: a token in the URL is for this machine only. Use keys.")
    if token is None:
        token = not has_keys
    hosts = frozenset(name.lower() for name in names)
    if local:
        hosts |= LOOPBACK_NAMES | {host.lower()}
    secret = clock.random_bytes(24).hex() if token is True else token or None
    return Server(
        home,
        token=secret,
        cookie_s=COOKIE_S if isinstance(token, str) else None,
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
    otlp: OtlpPorts | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the URL once the socket listens.

    `otlp`: also listen on OpenTelemetry's own ports.
    """
    _check_tls(cert, key)
    if cert is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"--host {host}: other machines can reach this address, and without TLS keys and runs"
            " are sent unencrypted. Pass --cert and --key, or --insecure behind a TLS proxy."
        )
    prepare(server.home)
    _redirect_logging(server)
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(_open_socket(host, port))]
        server.port = listeners[0].getsockname()[1]
        app = make_app(server)
        grpc = None
        if otlp is not None:
            server.otlp_key = read_otlp_key(server.home) if is_loopback(host) else None
            listeners.append(sockets.enter_context(_open_socket(host, otlp.http)))
            if otlp.grpc is not None:
                name = min(server.hosts or ("localhost",))
                grpc = GrpcEndpoint(app, host, otlp.grpc, name=name, cert=cert, key=key)
        config = uvicorn.Config(
            app,
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
        collector = CollectorWatch(server.home) if collect else None
        try:
            running = _Uvicorn(config, server, grpc)
            server.connections = running.server_state.connections
            server.connections_max = _connections_max()
            server.stop = running.stop
            with running.capture_signals():  # before the URL is announced
                if collector is not None:
                    collector.start()
                ready(format_url(server, host, secure=cert is not None))
                running.run(sockets=listeners)
                if running.failure is not None:
                    raise running.failure
        finally:
            if collector is not None:
                collector.close()
            server.close()


def _connections_max() -> int:
    """Return the connection limit, lowered to what RLIMIT_NOFILE leaves beside the store."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(HTTP_CONNECTIONS_MAX, files - 128))


def _redirect_logging(server: Server) -> None:
    """Write warnings of uvicorn and asyncio to the server's log, without their arguments."""

    class ServerLogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = str(record.msg).strip().partition("\n")[0]
            server.log({"at_ns": server.clock.now_ns(), "server": text})

    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [ServerLogHandler(logging.WARNING)]
        logger.propagate = False


def format_url(server: Server, host: str, *, secure: bool) -> str:
    scheme = "https" if secure else "http"
    name = f"[{host}]" if ":" in host else host
    query = "" if server.token is None else f"?token={server.token}"
    return f"{scheme}://{name}:{server.port}/{query}"


def _check_tls(cert: Path | None, key: Path | None) -> None:
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise UsageError("--cert and --key: one is missing (expected both or neither).")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--cert {cert}, --key {key}: cannot be loaded ({error}).") from None


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on a port."""
    try:
        with _open_socket(host, port):
            return True
    except UsageError:
        return False


@contextlib.contextmanager
def _open_socket(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host}: not an address of this machine ({error}).") from None
    # asyncio sets TCP_NODELAY only if the socket's protocol is set. Without it every response
    # would take 40 ms longer.
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1024)  # clients that connect before the server runs wait
        except OSError as error:
            raise UsageError(
                f"--host {host} --port {port}: {error.strerror}. Choose another port."
            ) from None
        yield listener


class _Uvicorn(uvicorn.Server):
    """Shuts down gracefully: streams end, requests are finished, and the exit code is 0."""

    def __init__(
        self, config: uvicorn.Config, server: Server, grpc: GrpcEndpoint | None = None
    ) -> None:
        super().__init__(config)
        self._server = server
        self._grpc = grpc
        self.failure: UsageError | None = None
        """The reason why the server could not start."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        try:
            numbers = (signal.SIGINT, signal.SIGTERM)
            previous = {number: signal.signal(number, self.handle_exit) for number in numbers}
        except ValueError:  # not the main thread: the caller ends the server
            yield
            return
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._grpc is not None:
            try:
                await self._grpc.start()
            except UsageError as error:
                self.failure = error
                self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._server.stopping.set()
        if self._grpc is not None:
            await self._grpc.stop()
        await super().shutdown(sockets)


def _protocol_for(server: Server) -> type[_Protocol]:
    class Protocol(_Protocol):
        vestige_server = server

    return Protocol


class _Protocol(H11Protocol):
    """HTTP protocol that closes stalled and excess connections.

    A connection is closed when its request does not arrive in time, when its client stops reading,
    or when too many are open. Malformed HTTP is answered with the server's error format.
    """

    vestige_server: ClassVar[Server]
    _request_timeout: asyncio.TimerHandle | None = None
    _send_check: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    """Size of the write buffer at the last check."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.vestige_server.connections_max + HTTP_REFUSED_MAX:
            transport.abort()  # a connection without a request never gets a response
            return
        self._watch_request()
        self._send_check = self.loop.call_later(LIVE_SEND_S, self._check_sending)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # the response was already sent or started
            return
        body = encode({"error": "validation_error", "message": "Not an HTTP/1.1 request."})
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
        self._cancel_request_timeout()
        if self._send_check is not None:
            self._send_check.cancel()
        super().connection_lost(exc)

    def _watch_request(self) -> None:
        """Start the timeout of a request, or cancel it once the request's head has arrived."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_request_timeout()
        elif self._request_timeout is None:
            self._request_timeout = self.loop.call_later(HTTP_HEADER_S, self.transport.close)

    def _cancel_request_timeout(self) -> None:
        if self._request_timeout is not None:
            self._request_timeout.cancel()
            self._request_timeout = None

    def _check_sending(self) -> None:
        """Abort if the client has read nothing since the last check. `close` would wait for it."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes and unsent_bytes == self._unsent_bytes:
            self.transport.abort()
            return
        self._unsent_bytes = unsent_bytes
        self._send_check = self.loop.call_later(LIVE_SEND_S, self._check_sending)
