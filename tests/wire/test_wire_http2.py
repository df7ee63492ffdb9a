"""HTTP/2: several calls at once over one connection, each its own span."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from types import ModuleType
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import httpx
import httpx2
import pytest

import vestige
from support.provider_answers import chat, chat_chunks
from support.provider_calls import calls_in
from vestige.home import Home


class Http2Server:
    """One connection, HTTP/2 without TLS; keeps what it received and sent by stream."""

    def __init__(self) -> None:
        self.received: dict[int, bytes] = {}
        self.sent: dict[int, bytes] = {}
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._thread.join(120)

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        http2.initiate_connection()
        connection.sendall(http2.data_to_send())
        while data := connection.recv(65536):
            for event in http2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.received[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    self.received[event.stream_id] += event.data
                    http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self._answer(http2, event.stream_id)
            connection.sendall(http2.data_to_send())
        connection.close()

    def _answer(self, http2: Any, stream: int) -> None:
        streamed = json.loads(self.received[stream]).get("stream")
        parts = chat_chunks(["Hel", "lo"]) if streamed else [chat().body]
        kind = "text/event-stream" if streamed else "application/json"
        http2.send_headers(stream, [(":status", "200"), ("content-type", kind)])
        for part in parts:
            http2.send_data(stream, part)
        http2.end_stream(stream)
        self.sent[stream] = b"".join(parts)


@pytest.mark.parametrize("module", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_calls_over_http2_are_captured(home: Home, module: ModuleType) -> None:
    """Sync transports: whole and streamed."""
    with (
        vestige.capture_http(),
        Http2Server() as server,
        module.Client(http1=False, http2=True) as client,
    ):
        for stream in (False, True):
            answer = client.post(
                f"{server.url}/v1/chat/completions",
                json={"model": "m", "stream": stream, "messages": [{"role": "user"}]},
            )
    calls = calls_in(home)

    assert answer.http_version == "HTTP/2"
    assert [call.request for call in calls] == list(server.received.values())
    assert [call.response for call in calls] == list(server.sent.values())
    assert {call["http_version"] for call in calls} == {"HTTP/2"}


def test_ten_calls_at_once_over_one_connection_are_told_apart(home: Home) -> None:
    """Their frames are mixed on the wire; their spans are not."""

    async def main() -> None:
        async with httpx2.AsyncClient(http1=False, http2=True) as client:
            await asyncio.gather(
                *(
                    client.post(
                        f"{server.url}/v1/chat/completions",
                        json={"model": f"m{n}", "messages": [{"role": "user", "content": "x" * n}]},
                    )
                    for n in range(10)
                )
            )

    with vestige.capture_http(), Http2Server() as server:
        asyncio.run(main())
    calls = calls_in(home)

    assert sorted(call.request for call in calls) == sorted(server.received.values())
    assert {call["model"] for call in calls} == {f"m{n}" for n in range(10)}
