"""Accept the connections of programs, relay their bytes, and let observers read them.

Three kinds of requests come in: `CONNECT host:port`, which is tunnelled, or intercepted if it is
a model host; `POST http://host/path`, for plain HTTP; and `POST /KEY/path`, where the proxy is the
base URL of a provider that the program would have called without TLS.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from vestige.emit.emitter import Emitter
from vestige.limits import PROXY_CONNECTIONS_MAX
from vestige.proxy.calls import Calls
from vestige.proxy.certificates import RunAuthority
from vestige.proxy.http1 import Http1Observer, Observer
from vestige.proxy.http2 import Http2Observer
from vestige.proxy.intercepted_hosts import HostRules, looks_like_model_host
from vestige.proxy.recording_thread import Recording, RecordingThread
from vestige.proxy.upstream import (
    BUFFER,
    HEAD_MAX,
    Streams,
    UnreachableError,
    Upstream,
    UpstreamError,
)
from vestige.wire.inferred_tools import InferredTools
from vestige.wire.outgoing_request import SpanContext
from vestige.wire.unrecorded_calls import record_gap, record_warning

_CHUNK = 64 * 1024
_HEAD_S = 60.0
_HANDSHAKE_S = 30.0
_HOSTS_MAX = 1000
_PROGRAMS_MAX = 1000


class Head(NamedTuple):
    """The first line and the headers of a request."""

    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]

    def find(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


class ProxyServer:
    """The proxy of one run."""

    def __init__(
        self,
        emitter: Emitter,
        authority: RunAuthority,
        rules: HostRules,
        upstream: Upstream,
        token: str,
        bases: Mapping[str, str],
        recording: RecordingThread | None = None,
    ) -> None:
        self._emitter = emitter
        self._authority = authority
        self._rules = rules
        self._upstream = upstream
        self._token = token
        self._bases = bases
        """The base URLs of providers, by their key in a path."""
        self._thread = recording or RecordingThread()
        self._tools: dict[str, InferredTools] = {}
        """The tools of each program, by the span that started it."""
        self._slots = asyncio.Semaphore(PROXY_CONNECTIONS_MAX)
        self._distrusting: dict[str, None] = {}
        """Hosts whose certificates a program did not accept. They are tunnelled from then on."""
        self._reported: set[str] = set()
        self._is_recording = True
        self.port = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=BUFFER, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def close(self, status: str = "ok") -> None:
        """Record what has been observed, and only relay from now on.

        `status`: that of tools without a result.
        """
        self._is_recording = False
        for tools in self._tools.values():
            self._thread.put(partial(tools.close, status))
        self._thread.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._slots:
            try:
                await self._answer(reader, writer)
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # The program or the host has closed the connection, or sent no request.
            except TimeoutError:
                pass
            finally:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            raw = await reader.readuntil(b"\r\n\r\n")
        head = _parse_head(raw)
        try:
            if head.method == "CONNECT":
                await self._connect(head, (reader, writer))
            elif head.target.startswith("/"):
                await self._serve_base(head, (reader, writer))
            else:
                await self._forward(head, (reader, writer))
        except UpstreamError as error:
            parts = urlsplit(f"//{head.target}" if head.method == "CONNECT" else head.target)
            if self._rules.intercepts(parts.hostname or "", parts.port or 443):
                is_gap = not isinstance(error, UnreachableError)
                self._report(self._find_context(head), f"a call failed: {error}", is_gap=is_gap)
            body = f"vestige proxy: {error}\n".encode()
            writer.write(
                b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            await writer.drain()

    # --- CONNECT --------------------------------------------------------------------------

    async def _connect(self, head: Head, client: Streams) -> None:
        parts = urlsplit(f"//{head.target}")
        host, port = parts.hostname or "", parts.port or 443
        context = self._find_context(head)
        remote = await self._upstream.connect("https", host, port)
        if context is None or (host, port) == ("127.0.0.1", self.port):
            await self._accept(client)  # Not of this run, or a base URL, which is recorded itself.
            await _relay(client, remote, None)
        elif self._rules.intercepts(host, port) and host not in self._distrusting:
            await self._intercept(host, port, context, client, remote)
        else:
            if port != 80 and looks_like_model_host(host) and host not in self._distrusting:
                self._report(
                    context,
                    f"calls of {host} were not recorded: it is not a known model host. If it is"
                    " one, add it to the setting proxy_hosts",
                )
            await self._accept(client)
            calls = Calls(_origin("http", host, port), context)
            await _relay(client, remote, self._record(Http1Observer(calls), context, plain=True))

    async def _accept(self, client: Streams) -> None:
        client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await client[1].drain()

    async def _intercept(
        self, host: str, port: int, context: SpanContext, client: Streams, remote: Streams
    ) -> None:
        await self._upstream.start_tls(remote, host, http2=True)
        has_http2 = _protocol(remote) == "h2"
        await self._accept(client)
        server_side = self._authority.context_for(host, has_http2)
        try:
            await client[1].start_tls(server_side, ssl_handshake_timeout=_HANDSHAKE_S)
        except (ssl.SSLError, OSError) as error:
            remote[1].close()
            if len(self._distrusting) < _HOSTS_MAX:
                self._distrusting[host] = None
            self._report(
                context,
                f"calls of {host} were not recorded: the program does not accept the certificate"
                f" of the proxy ({getattr(error, 'reason', None) or error}). It is connected"
                " directly from now on",
            )
            return
        if has_http2 and _protocol(client) != "h2":  # The program speaks HTTP/1.1 only.
            remote[1].close()
            remote = await self._upstream.connect("https", host, port)
            await self._upstream.start_tls(remote, host, http2=False)
            has_http2 = False
        calls = Calls(_origin("https", host, port), context)
        observer: Observer = Http2Observer(calls) if has_http2 else Http1Observer(calls)
        await _relay(client, remote, self._record(observer, context))

    # --- plain HTTP -----------------------------------------------------------------------

    async def _forward(self, head: Head, client: Streams) -> None:
        parts = urlsplit(head.target)
        host, port = parts.hostname or "", parts.port or 80
        if parts.scheme != "http" or not host:
            raise UpstreamError(f"{head.target[:200]}: not an address of HTTP")
        if (host, port) == ("127.0.0.1", self.port):  # A base URL of ours, through HTTP_PROXY.
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            await self._serve_base(head._replace(target=path), client)
            return
        context = self._find_context(head)
        parent = self._upstream.parent_for("http", host, port)
        if parent is not None:
            remote = await self._upstream.connect_proxy(parent)
            target, more = head.target, []
            if parent.authorization:
                more = [("Proxy-Authorization", parent.authorization)]
        else:
            remote = await self._upstream.connect("http", host, port)
            target, more = parts.path or "/", []
            target += f"?{parts.query}" if parts.query else ""
        await self._relay_one(
            head._replace(target=target, headers=[*head.headers, *more]),
            Calls(_origin("http", host, port), context) if context is not None else None,
            client,
            remote,
        )

    async def _serve_base(self, head: Head, client: Streams) -> None:
        key, _, path = head.target[1:].partition("/")
        token, _, rest = key.partition(".")
        name, _, parent = rest.partition(".")
        base = self._bases.get(name)
        if token != self._token or base is None:
            raise UpstreamError("an unknown path")
        parts = urlsplit(base)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        remote = await self._upstream.connect(parts.scheme, host, port)
        if parts.scheme == "https":
            await self._upstream.start_tls(remote, host, http2=False)
        headers = [
            ("Host", parts.netloc) if n.lower() == "host" else (n, v) for n, v in head.headers
        ]
        target = f"{parts.path.rstrip('/')}/{path}"
        calls = None
        if self._is_recording:
            calls = Calls(_origin(parts.scheme, host, port), self._make_context(parent))
        await self._relay_one(head._replace(target=target, headers=headers), calls, client, remote)

    async def _relay_one(
        self, head: Head, calls: Calls | None, client: Streams, remote: Streams
    ) -> None:
        """Relay one request: the next one on this connection may be for another host."""
        upgrades = "upgrade" in (head.find("connection") or "").lower()
        dropped = {"proxy-connection", "proxy-authorization"} - (
            {"proxy-authorization"} if not head.target.startswith("/") else set()
        )
        if not upgrades:
            dropped |= {"connection", "keep-alive"}
        lines = [f"{head.method} {head.target} {head.version}"]
        lines += [f"{n}: {v}" for n, v in head.headers if n.lower() not in dropped]
        if not upgrades:
            lines.append("Connection: close")
        raw = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        recording = None
        if calls is not None:
            recording = self._record(Http1Observer(calls), calls.context)
            recording.sent(raw)
        remote[1].write(raw)
        await _relay(client, remote, recording)

    # --- recording ------------------------------------------------------------------------

    def _record(self, observer: Observer, context: SpanContext, plain: bool = False) -> Recording:
        def report(reason: str) -> None:
            record_gap(context, reason)

        return Recording(self._thread, observer, report, maybe_tls=plain)

    def _find_context(self, head: Head) -> SpanContext | None:
        """Return the span that started the program. None: the connection is not of this run."""
        scheme, _, coded = (head.find("proxy-authorization") or "").partition(" ")
        if scheme.lower() != "basic" or not self._is_recording:
            return None
        user, _, password = base64.b64decode(coded.strip()).decode("latin-1").partition(":")
        return self._make_context(user) if password == self._token else None

    def _make_context(self, parent: str) -> SpanContext:
        emitter = self._emitter
        run_id, _, rest = parent.partition(".")
        span_id, _, program = rest.partition(".")
        if not run_id or not span_id:
            run_id, span_id = emitter.process_run_id, emitter.process_span_id or ""
        tools = self._tools.get(parent)
        if tools is None:
            tools = self._tools[parent] = InferredTools()
            if len(self._tools) > _PROGRAMS_MAX:
                del self._tools[next(iter(self._tools))]
        return SpanContext(emitter, run_id, span_id, "agent", tools, program)

    def _report(self, context: SpanContext | None, reason: str, *, is_gap: bool = True) -> None:
        """Log a reason once. `is_gap`: a call may be missing in the run."""
        if (
            context is not None
            and self._is_recording
            and reason not in self._reported
            and len(self._reported) < _HOSTS_MAX
        ):
            self._reported.add(reason)
            (record_gap if is_gap else record_warning)(context, reason)


async def _relay(client: Streams, remote: Streams, recording: Recording | None) -> None:
    """Relay both directions until both have ended."""
    try:
        await asyncio.gather(
            _copy(client[0], remote[1], recording and recording.sent),
            _copy(remote[0], client[1], recording and recording.received),
        )
        if recording is not None:
            recording.ended(None)
    except OSError as error:
        if recording is not None:
            recording.ended(error)
        for _, writer in (client, remote):
            writer.transport.abort()  # Pass the reset on.
    finally:
        remote[1].close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, observe: object
) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        if callable(observe):
            observe(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()  # TLS: the other direction ends too.


def _parse_head(raw: bytes) -> Head:
    if len(raw) > HEAD_MAX:
        raise ValueError("the head of a request is too long")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, version = first.split(" ", 2)
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name.strip(), value.strip()))
    return Head(method.upper(), target, version, headers)


def _protocol(streams: Streams) -> str | None:
    tls = streams[1].get_extra_info("ssl_object")
    return None if tls is None else tls.selected_alpn_protocol()


def _origin(scheme: str, host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return (
        f"{scheme}://{name}"
        if port == {"http": 80, "https": 443}[scheme]
        else f"{scheme}://{name}:{port}"
    )
