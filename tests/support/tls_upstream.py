"""A real TLS server on loopback with a certificate of its own, and a recording proxy before it."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import vestige
from support.provider_answers import chat_chunks
from vestige.home import Home
from vestige.proxy.certificates import RunAuthority
from vestige.proxy.intercepted_hosts import HostRules
from vestige.proxy.server import ProxyServer
from vestige.proxy.upstream import Upstream

BLOB = bytes(range(256)) * 4096 * 50  # 50 MiB


def write_certificate(folder: Path) -> Path:
    """Write a certificate for localhost that signs itself, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "upstream.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def server_context(certificate: Path, *protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    context.set_alpn_protocols(list(protocols or ("http/1.1",)))
    return context


@dataclass
class Upstream1:
    """A server of HTTP/1.1: model calls, each event sent when the test allows it, and a blob."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    may_continue: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve_http1(certificate: Path | None, *, wait: bool = False) -> Iterator[Upstream1]:
    state = Upstream1()
    if not wait:
        state.may_continue.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(BLOB)))
            self.end_headers()
            self.wfile.write(BLOB)

        def do_POST(self) -> None:
            state.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            parts = chat_chunks(["Hel", "lo"])
            for number, part in enumerate(parts):
                if number == 1:
                    state.may_continue.wait(60)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            state.sent.append(b"".join(parts))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = server_context(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.may_continue.set()
        server.shutdown()
        server.server_close()


@contextmanager
def serve_http2(certificate: Path) -> Iterator[Upstream1]:
    """A server that speaks HTTP/2 over TLS and answers each request with a stream."""
    state = Upstream1()
    server = _socket_server()
    state.port = server.getsockname()[1]
    context = server_context(certificate, "h2", "http/1.1")

    def accept() -> None:
        while True:
            try:
                raw, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=_speak_http2, args=(raw, context, state), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield state
    finally:
        server.close()


def _socket_server() -> object:
    import socket

    return socket.create_server(("127.0.0.1", 0))


def _speak_http2(raw: object, context: ssl.SSLContext, state: Upstream1) -> None:
    connection = context.wrap_socket(raw, server_side=True)  # type: ignore[arg-type]
    if connection.selected_alpn_protocol() != "h2":
        connection.close()
        return
    http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    http2.initiate_connection()
    connection.sendall(http2.data_to_send())
    received: dict[int, bytes] = {}
    while data := connection.recv(65536):
        for event in http2.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                received[event.stream_id] = received.get(event.stream_id, b"") + event.data
                http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                state.bodies.append(received.pop(event.stream_id))
                parts = chat_chunks(["Hel", "lo"])
                headers = [(":status", "200"), ("content-type", "text/event-stream")]
                http2.send_headers(event.stream_id, headers)
                for part in parts:
                    http2.send_data(event.stream_id, part)
                http2.end_stream(event.stream_id)
                state.sent.append(b"".join(parts))
        connection.sendall(http2.data_to_send())
    connection.close()


@dataclass
class ProxyInTest:
    url: str
    context: ssl.SSLContext
    """Trusts the authority of the run, as a program under `vestige run` does."""


@contextmanager
def running_proxy(
    home: Home,
    *hosts: str,
    env: dict[str, str] | None = None,
    bases: dict[str, str] | None = None,
) -> Iterator[ProxyInTest]:
    """Run the proxy in a thread of this process. Its recorder writes to `home`."""
    authority = RunAuthority()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with vestige.Recorder(home, crash_hooks=False) as recorder:
        capture = vestige.capture_http(recorder=recorder)

        async def start() -> tuple[ProxyServer, asyncio.Server]:
            upstream = Upstream(env or {})
            server = ProxyServer(
                recorder._emitter, authority, HostRules(hosts), upstream, "token", bases or {}
            )
            return server, await server.start()

        server, listener = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        context = ssl.create_default_context(cadata=authority.pem.decode())
        try:
            yield ProxyInTest(f"http://:token@127.0.0.1:{server.port}", context)
        finally:
            asyncio.run_coroutine_threadsafe(_stop(listener), loop).result(30)
            server.close()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()
            capture.remove()


async def _stop(listener: asyncio.Server) -> None:
    listener.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks, timeout=1)


def question(content: str = "hello") -> bytes:
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
