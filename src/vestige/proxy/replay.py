"""Recorded responses instead of model hosts, for programs of `vestige replay` that are not Python.

The proxy works as when it records, but the connection to a model host ends here: its requests are
answered by the player (wire/replaying/response_player.py), and never reach the network. All other
connections are tunnelled as usual.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11

from vestige.emit.emitter import Emitter
from vestige.limits import BODY_MAX
from vestige.proxy.intercepted_hosts import HostRules
from vestige.proxy.upstream import BUFFER, Streams, Upstream
from vestige.wire import call_selection, capture
from vestige.wire.content_encoding import decode, is_coded
from vestige.wire.header_redaction import find_header
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.replaying.response_player import Answer, Player

_CHUNK = 64 * 1024
_PORTS = {"http": 80, "https": 443}


class ReplayUpstream(Upstream):
    """Connects model hosts to the player."""

    def __init__(
        self,
        env: Mapping[str, str],
        rules: HostRules,
        bases: Mapping[str, str],
        player: Player,
        emitter: Emitter,
    ) -> None:
        super().__init__(env)
        player.obstacle = "a fork can send the calls of Python programs only"
        self._rules, self._player, self._emitter = rules, player, emitter
        self._bases = {_place_of(url) for url in bases.values()}
        self._answering: set[asyncio.Task[None]] = set()
        self._replayed: set[asyncio.StreamWriter] = set()

    async def connect(self, scheme: str, host: str, port: int) -> Streams:
        if not self._rules.intercepts(host, port) and (host, port) not in self._bases:
            return await super().connect(scheme, host, port)
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=far, limit=BUFFER)
        task = asyncio.create_task(self._answer_all(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        streams = await asyncio.open_connection(sock=near, limit=BUFFER)
        self._replayed.add(streams[1])
        return streams

    async def start_tls(self, streams: Streams, host: str, http2: bool) -> None:
        if streams[1] in self._replayed:
            self._replayed.discard(streams[1])  # Nothing leaves this process.
        else:
            await super().start_tls(streams, host, http2)

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, in their order."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=256 * 1024)
        try:
            while True:
                found = await _read_request(http, reader)
                if found is None:
                    return
                answer = await asyncio.to_thread(self._find, *found)
                if answer.status is None:
                    return  # There was no response.
                for part in _encode(http, answer):
                    writer.write(part)
                    await writer.drain()
                if http.our_state is h11.MUST_CLOSE:
                    return
                http.start_next_cycle()
        except (OSError, h11.ProtocolError):
            pass  # The program has closed the connection, or sent no request.
        finally:
            writer.close()

    def _find(self, request: h11.Request, body: bytes) -> Answer:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers
        ]
        target = request.target.decode("latin-1")
        if find_header(headers, "upgrade") is not None:
            return _make_error(426, "a WebSocket cannot be replayed")
        coding = find_header(headers, "content-encoding") or ""
        if is_coded(coding):
            plain = decode(body, coding, BODY_MAX)
            body = body if plain is None else bytes(plain.data)
        host = find_header(headers, "host") or "localhost"
        outgoing = OutgoingRequest(
            request.method.decode("latin-1"),
            f"https://{host}{target}",
            host,
            target.partition("?")[0],
            [pair for pair in headers if pair[0].lower() != "content-encoding"],
            body,
        )
        policy = capture.active()
        if policy is None or call_selection.find_recorded_endpoint(policy, outgoing) is None:
            return _make_error(404, "not a model call, and not recorded")
        try:
            answer = self._player.answer(outgoing, self._emitter.redact)
        except Exception as error:  # noqa: BLE001  # The request must not reach the network.
            return self._player.fail(error)
        assert answer is not None  # Only a request that can be sent has no answer.
        return answer


def _place_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)


async def _read_request(
    http: h11.Connection, reader: asyncio.StreamReader
) -> tuple[h11.Request, bytes] | None:
    """Return the next request and its body. None: the connection has ended."""
    request, body = None, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_MAX:
                return None
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            return None


def _encode(http: h11.Connection, answer: Answer) -> list[bytes]:
    """Return the response in pieces: an event stream event by event."""
    assert answer.status is not None
    head = h11.Response(status_code=answer.status, headers=answer.replay_headers())
    events: list[h11.Event] = [head, *(h11.Data(data=chunk) for chunk in answer.chunks())]
    return [http.send(event) or b"" for event in [*events, h11.EndOfMessage()]]


def _make_error(status: int, reason: str) -> Answer:
    body = b'{"error": {"type": "replay", "message": "vestige replay: %s"}}' % reason.encode()
    return Answer(status, {"content-type": "application/json"}, body)
