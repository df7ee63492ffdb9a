"""A provider on loopback that keeps the exact bytes that it received and sent.

with Server(lambda request: Reply(body=b"...")) as server:
    OpenAI(base_url=server.url + "/v1", api_key="...")
server.seen[0].body, server.seen[0].sent
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from support.programs import WAIT_S


@dataclass
class Reply:
    """What the server answers."""

    status: int = 200
    body: bytes = b""
    chunks: Sequence[bytes] | None = None
    """Sent one by one, in chunked transfer coding."""
    raw: bytes | None = None
    """Sent unchanged after the headers, whose length may be wrong. Then the connection closes."""
    headers: dict[str, str] = field(default_factory=dict)
    type: str = "application/json"
    reset_after: int | None = None
    """Reset the connection after this many chunks."""
    gate: threading.Event | None = None
    """Wait for it before each chunk but the first, or before a whole answer."""


@dataclass
class Seen:
    """One request, as it came, and the body that went back, as it went."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]
    sent: bytes = b""


class _Threading(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # twenty clients at once must not be refused


class Server:
    def __init__(self, answer: Callable[[Seen], Reply] | Sequence[Reply]) -> None:
        replies = list(answer) if not callable(answer) else []
        self._answer = answer if callable(answer) else lambda seen: replies.pop(0)
        self.seen: list[Seen] = []
        self._lock = threading.Condition()
        self._http = _Threading(("127.0.0.1", 0), _handler(self))
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # A short poll: closing the server waits for it.
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), daemon=True, name="provider"
        )

    def reply(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            self._lock.notify_all()
            return self._answer(seen)

    def wait_until_seen(self, count: int = 1) -> None:
        """Wait for a number of complete requests: a client that gave up did not wait for that."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.seen) >= count, WAIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            seen = Seen(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self._read(),
                self.client_address,
            )
            try:
                self._send(server.reply(seen), seen)
            except OSError:
                self.close_connection = True  # the client went away

        do_GET = do_PUT = do_POST

        def _read(self) -> bytes:
            if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _send(self, reply: Reply, seen: Seen) -> None:
            if reply.chunks is None and reply.gate is not None:
                reply.gate.wait(WAIT_S)
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.type)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.raw is not None:
                self.end_headers()
                self.wfile.write(reply.raw)
                self.close_connection = True
                return
            if reply.chunks is None:
                seen.sent = reply.body
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number, chunk in enumerate(reply.chunks):
                if number == reply.reset_after:
                    self._reset()
                    return
                if number and reply.gate is not None:
                    reply.gate.wait(WAIT_S)
                seen.sent += chunk
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def _reset(self) -> None:
            """A reset, not a polite end."""
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.rfile.close()
            self.connection.close()
            self.close_connection = True

    return Handler
