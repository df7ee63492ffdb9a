"""aiohttp: captured as it arrives, whole, streamed, cut."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import vestige
import vestige.agentdbg as agentdbg
from support.provider_answers import chat, chat_stream, refusal
from support.provider_calls import calls_in, spans_in
from support.provider_server import Reply, Server
from vestige.home import Home
from vestige.wire import aiohttp_hook

BODY = {"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _capture(home: Home) -> Iterator[None]:
    with vestige.capture_http():
        yield


def run(
    server: Server, use: Callable[[aiohttp.ClientResponse], Awaitable[Any]], **more: Any
) -> Any:
    async def main() -> Any:
        options = {"json": BODY, **more}
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.url + CHAT, **options) as response,
        ):
            return await use(response)

    return asyncio.run(main())


def test_a_call_of_aiohttp_is_captured_byte_for_byte(home: Home) -> None:
    """A short answer arrives together with its headers."""
    with Server([chat()]) as server, vestige.Recorder(home).run("agent") as outer:
        answer = run(server, lambda response: response.json())
    (call,) = calls_in(home)

    assert answer["model"] == "gpt-5-mini"
    assert call.request == server.seen[0].body
    assert call.response == server.seen[0].sent
    assert (call.span.parent_id, call.span.status) == (outer.id, "ok")
    assert (call["model"], call["input_tokens"], call["request_id"]) == ("m", 12, "req_chat_1")


@pytest.mark.parametrize("read", ["read", "lines", "chunks", "any"])
def test_a_stream_of_aiohttp_is_captured_however_it_is_read(home: Home, read: str) -> None:
    """The program sees the chunks that it would see without us."""

    async def use(response: aiohttp.ClientResponse) -> bytes:
        content = response.content
        if read == "read":
            return await response.read()
        if read == "lines":
            return b"".join([line async for line in content])
        if read == "chunks":
            return b"".join([chunk async for chunk in content.iter_chunked(7)])
        return b"".join([chunk async for chunk in content.iter_any()])

    with Server([chat_stream(["Hel", "lo"] * 50)]) as server:
        got = run(server, use)
    (call,) = calls_in(home)

    assert got == call.response == server.seen[0].sent
    assert (call.span.status, call["output_tokens"]) == ("ok", 2)
    assert 0 < call["first_token_ns"] <= call.span.duration_ns


def test_a_gzip_answer_is_stored_plain(home: Home) -> None:
    """aiohttp undoes the coding itself."""
    packed = gzip.compress(chat().body)
    with Server([Reply(body=packed, headers={"Content-Encoding": "gzip"})]) as server:
        run(server, lambda response: response.json())
    (call,) = calls_in(home)

    assert call.response == chat().body
    assert call["response.encoding"] == "gzip"


def test_a_body_that_is_a_generator_is_captured_as_it_passes(home: Home) -> None:
    """Consumed once, by aiohttp; packed on its way, stored plain."""
    parts = [b'{"model": "m", ', b'"messages": [{"role": "user", "content": "hi"}]}']

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    with Server([chat(), chat()]) as server:
        run(server, lambda response: response.read(), json=None, data=body())
        run(server, lambda response: response.read(), compress="deflate")
    streamed, packed = calls_in(home)

    assert streamed.request == server.seen[0].body == b"".join(parts)
    assert streamed["request.streamed"] is True
    assert packed["request.encoding"] == "deflate"
    assert packed.request.startswith(b'{"model"')


def test_a_response_that_is_left_early_keeps_its_part(home: Home) -> None:
    """Cancelled, partial."""
    gate = threading.Event()
    with Server([chat_stream(["Hel", "lo"], gate=gate)]) as server:
        run(server, lambda response: response.content.readany())
        gate.set()
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("cancelled", True)
    assert call.response == chat_stream(["Hel"]).chunks[0]  # type: ignore[index]


def test_timeouts_are_told_as_such(home: Home) -> None:
    """Before the answer, and in its middle."""
    gate = threading.Event()
    timeout = aiohttp.ClientTimeout(sock_read=0.1)

    async def read_on(response: aiohttp.ClientResponse) -> None:
        await response.content.readany()  # however long the first part took
        assert response.connection is not None
        assert response.connection.protocol is not None
        response.connection.protocol.read_timeout = 0.1
        response.connection.protocol.start_timeout()
        await response.read()

    with Server([Reply(gate=gate), chat_stream(["Hel"], gate=gate)]) as server:
        with pytest.raises(asyncio.TimeoutError):
            run(server, lambda response: response.read(), timeout=timeout)
        server.wait_until_seen()  # so that the next request gets the next answer
        with pytest.raises(asyncio.TimeoutError):
            run(server, read_on)
        gate.set()
    before, middle = calls_in(home)

    assert (before.span.status, before.response) == ("timeout", b"")
    assert (middle.span.status, middle["response.partial"]) == ("timeout", True)


def test_a_connection_that_is_reset_keeps_what_came(home: Home) -> None:
    """An error, with the part that arrived."""
    reply = chat_stream(["Hel", "lo"], reset_after=2)
    with Server([reply]) as server, pytest.raises(aiohttp.ClientError):
        run(server, lambda response: response.read())
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("error", True)
    assert b"".join(chat_stream(["Hel", "lo"]).chunks[:2]).startswith(call.response)  # type: ignore[index]


def test_an_answer_that_is_not_what_its_headers_say_is_an_error(home: Home) -> None:
    """Whether it comes with the headers or after them: no cancellation."""
    reply = Reply(body=chat().body, headers={"Content-Encoding": "gzip"})
    with Server([reply]) as server, pytest.raises(aiohttp.ClientPayloadError):
        run(server, lambda response: response.read())
    (call,) = calls_in(home)

    assert call.span.status == "error"
    assert "ClientPayloadError" in call["error.type"] or "Encoding" in call["error.type"]


def test_a_refused_connection_is_a_call_too(home: Home) -> None:
    """It failed before anything was sent."""
    with Server([]) as server:
        pass
    with pytest.raises(aiohttp.ClientConnectorError):
        run(server, lambda response: response.read())
    (call,) = calls_in(home)

    assert (call.span.status, call["model"]) == ("error", "m")


def test_an_error_keeps_its_body(home: Home) -> None:
    """The provider's own words name the defect."""
    with Server([refusal(400, "messages.2: tool_use without tool_result")]) as server:
        run(server, lambda response: response.read())
    (call,) = calls_in(home)

    assert call.response == server.seen[0].sent
    assert "tool_use without tool_result" in call["error.message"]


def test_twenty_concurrent_tasks_get_their_own_parents(home: Home) -> None:
    """The connector runs in the task of its request."""

    async def step(session: aiohttp.ClientSession, outer: vestige.Span, number: int) -> None:
        messages = [{"role": "user", "content": f"number {number}"}]
        async with (
            outer.child(f"step {number}"),
            session.post(server.url + CHAT, json={"messages": messages}) as response,
        ):
            await response.read()

    async def main() -> None:
        async with aiohttp.ClientSession() as session, recorder.run("agent") as outer:
            await asyncio.gather(*(step(session, outer, number) for number in range(20)))

    recorder = vestige.Recorder(home)
    with Server(lambda seen: chat()) as server:
        asyncio.run(main())
    calls, spans = calls_in(home), spans_in(home)

    assert len(calls) == 20
    for call in calls:
        number = spans[str(call.span.parent_id)].name.removeprefix("step ")
        assert f'"number {number}"'.encode() in call.request


@pytest.mark.parametrize("reset_after", [None, 2])
def test_a_guardrail_stops_the_program_that_reads_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reset_after: int | None
) -> None:
    """A stream ends in the event loop, which would log the limit and go on: it is the reader's."""
    monkeypatch.setenv("AGENTDBG_DATA_DIR", str(tmp_path / "agentdbg"))
    answer = chat_stream(["Hel", "lo"] * 50)
    answer.reset_after = reset_after
    done = []

    async def main(url: str) -> None:
        with agentdbg.traced_run("agent", max_llm_calls=1):
            async with aiohttp.ClientSession() as session:
                for _ in range(3):
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.post(url, json=BODY) as response:
                            await response.read()
                    done.append(True)

    with Server(lambda seen: answer) as server, pytest.raises(agentdbg.AgentDbgGuardrailExceeded):
        asyncio.run(main(server.url + CHAT))

    assert len(done) == 1


def test_a_guardrail_stops_who_waits_for_nothing_but_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it has been read, and the end comes by itself."""
    monkeypatch.setenv("AGENTDBG_DATA_DIR", str(tmp_path / "agentdbg"))
    gate = threading.Event()
    body = b"".join(chat_stream(["Hello"]).chunks or ())
    # A chunk without length is the end.
    answer = Reply(
        chunks=[body, b""], type="text/event-stream", gate=gate, headers={"Connection": "close"}
    )
    done = []

    async def main(url: str) -> None:
        with agentdbg.traced_run("agent", max_llm_calls=1):
            async with aiohttp.ClientSession() as session:
                for _ in range(3):
                    gate.clear()
                    async with session.post(url, json=BODY) as response:
                        read = b""
                        while len(read) < len(body):
                            read += await response.content.readany()
                        asyncio.get_running_loop().call_soon(gate.set)  # once we wait
                        await response.read()
                    done.append(True)

    with Server(lambda seen: answer) as server, pytest.raises(agentdbg.AgentDbgGuardrailExceeded):
        asyncio.run(main(server.url + CHAT))

    assert len(done) == 1


@pytest.mark.slow
def test_a_response_that_is_dropped_unread_is_over(home: Home) -> None:
    """Nobody closed it: its bytes are let go with it, and its span says how it ended."""
    gate = threading.Event()

    async def main(server: Server) -> None:
        async with aiohttp.ClientSession() as session:
            response = await session.post(server.url + CHAT, json=BODY)
            await response.content.readany()

    with Server([Reply(chunks=[b"data: 1\n\n"] * 3, gate=gate)]) as server:
        asyncio.run(main(server))
        gc.collect()
        gate.set()
    (call,) = calls_in(home)

    assert call.span.status == "cancelled"
    assert call.response == b"data: 1\n\n"
    assert not aiohttp_hook._streams
