"""httpx and httpx2, by the real SDKs over them: captured bytes are the server's, and nothing
changes.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai

import vestige
from support.provider_answers import (
    chat,
    chat_call,
    chat_stream,
    claude,
    claude_stream,
    gemini,
    gemini_stream,
    refusal,
)
from support.provider_calls import Call, calls_in, spans_in
from support.provider_server import Reply, Server
from vestige.home import Home

KEY = "sk-test-4711471147114711"
HELLO: Any = [{"role": "user", "content": "Grüße, „Welt“"}]


@pytest.fixture
def capture(home: Home) -> Iterator[vestige.wire.capture.Capture]:  # type: ignore[name-defined]
    with vestige.capture_http() as handle:
        yield handle


def openai_client(server: Server, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, **more)


def async_openai_client(server: Server, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, **more)


def claude_client(server: Server, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=KEY, **more)


def gemini_client(server: Server) -> genai.Client:
    return genai.Client(api_key=KEY, http_options={"base_url": server.url})


def one(home: Home, server: Server) -> Call:
    """The only call, its bytes compared with what the server saw."""
    (call,) = calls_in(home)

    assert call.request == server.seen[0].body
    assert call.response == server.seen[0].sent
    return call


# --- OpenAI ---------------------------------------------------------------------------------------


def test_a_call_of_the_openai_sdk_is_captured_byte_for_byte(home: Home, capture: object) -> None:
    """Request and response as the server received and sent them; the call is in the span
    that made it."""
    with Server([chat()]) as server, vestige.Recorder(home).run("agent") as run:
        answer = openai_client(server).chat.completions.create(
            model="gpt-5-mini", messages=HELLO, temperature=0.2
        )
    call = one(home, server)

    assert answer.choices[0].message.content == "Hello there"
    assert (call.span.type, call.span.name, call.span.status) == ("llm", "chat.completions", "ok")
    assert call.span.parent_id == run.id
    assert (call["model"], call["temperature"], call["method"]) == ("gpt-5-mini", 0.2, "POST")
    assert call["url"] == f"{server.url}/v1/chat/completions"
    assert (call["input_tokens"], call["output_tokens"], call["cache_read_tokens"]) == (12, 3, 8)
    assert (call["status_code"], call["request_id"], call["attempt"]) == (200, "req_chat_1", 1)
    assert call["finish_reason"] == "stop"
    assert 0 < call["first_byte_ns"] <= call.span.duration_ns
    assert len(call["prefix.fingerprint"]) == 16


def test_an_async_call_is_captured_too(home: Home, capture: object) -> None:
    """The async transport is another method."""

    async def main() -> None:
        async with async_openai_client(server) as client:
            await client.responses.create(model="gpt-5-mini", input="Grüße", max_output_tokens=99)

    answer = (
        b'{"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5-mini", '
        b'"output": [{"type": "message", "id": "msg_1", "role": "assistant", '
        b'"status": "completed", "content": [{"type": "output_text", "text": "Hi", '
        b'"annotations": []}]}], "created_at": 1, '
        b'"usage": {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}, "tools": [], '
        b'"parallel_tool_calls": true, "tool_choice": "auto"}'
    )
    with Server([Reply(body=answer)]) as server:
        asyncio.run(main())
    call = one(home, server)

    assert (call.span.name, call["provider"], call["max_tokens"]) == ("responses", "openai", 99)
    assert (call["input_tokens"], call["output_tokens"]) == (4, 2)


def test_a_stream_is_put_together_once_at_its_end(home: Home, capture: object) -> None:
    """One output body, the bytes of all events; the first token has a time of its own."""
    with Server([chat_stream(["Hel", "lo"])]) as server:
        stream = openai_client(server).chat.completions.create(
            model="gpt-5-mini", messages=HELLO, stream=True
        )
        words = [event.choices[0].delta.content for event in stream if event.choices]
    call = one(home, server)

    assert words == ["", "Hel", "lo", None]
    assert (call.span.status, call["stream"], call["finish_reason"]) == ("ok", True, "stop")
    assert (call["input_tokens"], call["output_tokens"]) == (5, 2)
    assert call["first_byte_ns"] <= call["first_token_ns"] <= call.span.duration_ns
    assert call["response.partial"] is None


def test_an_async_stream_is_captured_too(home: Home, capture: object) -> None:
    """The async response has another stream."""

    async def main() -> list[Any]:
        async with async_openai_client(server) as client:
            stream = await client.chat.completions.create(
                model="gpt-5-mini", messages=HELLO, stream=True
            )
            return [event async for event in stream]

    with Server([chat_stream(["Hel", "lo"])]) as server:
        events = asyncio.run(main())
    call = one(home, server)

    assert len(events) == 5
    assert (call.span.status, call["output_tokens"]) == ("ok", 2)


def test_tool_calls_asked_for_are_named_and_found_by_their_ids(home: Home, capture: object) -> None:
    """`vestige span call_7` finds the model call, or the tool span where there is one."""
    with Server([chat(calls=[chat_call("call_7"), chat_call("call_8", "open")])]) as server:
        openai_client(server).chat.completions.create(model="gpt-5-mini", messages=HELLO)
    call = one(home, server)

    assert call["tool_calls"] == 2
    assert (call["tool_call.0.id"], call["tool_call.1.name"]) == ("call_7", "open")
    with vestige.open(home.root) as debugger:
        assert debugger.span("call_7").span.id == call.span.id


def test_a_tool_span_is_found_before_the_call_that_asked_for_it(
    home: Home, capture: object
) -> None:
    """The id names the tool call; the model call only mentions it."""
    with (
        Server([chat(calls=[chat_call("call_7")])]) as server,
        vestige.Recorder(home).run("agent") as run,
    ):
        openai_client(server).chat.completions.create(model="gpt-5-mini", messages=HELLO)
        tool = run.child("search", "tool", {"tool_call_id": "call_7"})
        tool.end()
    calls_in(home)

    with vestige.open(home.root) as debugger:
        assert debugger.span("call_7").span.id == tool.id


def test_each_attempt_of_a_retry_is_one_span(home: Home, capture: object) -> None:
    """Attempts are numbered, each with the raw error body that it met."""
    replies = [refusal(429), refusal(500, "Server on fire"), chat()]
    with Server(replies) as server:
        openai_client(server, max_retries=2).chat.completions.create(
            model="gpt-5-mini", messages=HELLO
        )
    first, second, third = calls_in(home)

    assert [call["attempt"] for call in (first, second, third)] == [1, 2, 3]
    assert [call["status_code"] for call in (first, second, third)] == [429, 500, 200]
    assert [call.span.status for call in (first, second, third)] == ["error", "error", "ok"]
    assert first.response == server.seen[0].sent
    assert second["error.type"] == "HTTP 500"
    assert "Server on fire" in second["error.message"]


def test_a_timeout_is_told_as_one(home: Home, capture: object) -> None:
    """The SDK raises its own error; the span has the client's."""
    gate = threading.Event()
    with Server([Reply(gate=gate)]) as server:
        client = openai_client(server, timeout=openai.Timeout(120, read=0.1), max_retries=0)
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="gpt-5-mini", messages=HELLO)
        server.wait_until_seen()
        gate.set()
    (call,) = calls_in(home)

    assert (call.span.status, call["error.type"]) == ("timeout", "httpx2.ReadTimeout")
    assert call.request == server.seen[0].body
    assert call.response == b""


def test_a_stream_that_is_closed_early_keeps_its_part(home: Home, capture: object) -> None:
    """Partial, marked so, and cancelled; the connection goes back as without us."""
    gate = threading.Event()
    with Server([chat_stream(["Hel", "lo"], gate=gate)]) as server:
        stream = openai_client(server).chat.completions.create(
            model="gpt-5-mini", messages=HELLO, stream=True
        )
        next(iter(stream))
        stream.close()
        gate.set()
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("cancelled", True)
    assert call.response == chat_stream(["Hel"]).chunks[0]  # type: ignore[index]


def test_a_cancelled_task_is_told_as_cancelled(home: Home, capture: object) -> None:
    """Cancelled while it waits for the next event."""
    gate = threading.Event()
    begun = asyncio.Event()

    async def read() -> None:
        async with async_openai_client(server) as client:
            stream = await client.chat.completions.create(
                model="gpt-5-mini", messages=HELLO, stream=True
            )
            async for _ in stream:
                begun.set()

    async def main() -> None:
        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Server([chat_stream(["Hel", "lo"], gate=gate)]) as server:
        asyncio.run(main())
        gate.set()
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("cancelled", True)
    assert call.response == chat_stream(["Hel"]).chunks[0]  # type: ignore[index]


def test_a_connection_that_is_reset_keeps_what_came(home: Home, capture: object) -> None:
    """An error, with the part that arrived."""
    with Server([chat_stream(["Hel", "lo"], reset_after=2)]) as server:
        stream = openai_client(server).chat.completions.create(
            model="gpt-5-mini", messages=HELLO, stream=True
        )
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError, openai.APIError)):
            list(stream)
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("error", True)
    assert call["error.type"] in ("httpx2.ReadError", "httpx2.RemoteProtocolError")
    assert call.response == b"".join(chat_stream(["Hel", "lo"]).chunks[:2])  # type: ignore[index]


def test_a_refused_connection_is_a_call_too(home: Home, capture: object) -> None:
    """Nothing came back; what was to go out is there."""
    with Server([]) as server:
        pass
    with pytest.raises(openai.APIConnectionError):
        openai_client(server, max_retries=0).chat.completions.create(model="m", messages=HELLO)
    (call,) = calls_in(home)

    assert (call.span.status, call["error.type"]) == ("error", "httpx2.ConnectError")
    assert b'"model":"m"' in call.request


# --- codings --------------------------------------------------------------------------------------


def _coded(coding: str, body: bytes) -> bytes:
    if coding == "gzip":
        return gzip.compress(body)
    import brotli

    return bytes(brotli.compress(body))


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_coded_answer_is_stored_plain(home: Home, capture: object, coding: str) -> None:
    """The coding and the size on the wire are attributes."""
    plain = chat().body
    packed = _coded(coding, plain)
    with Server([Reply(body=packed, headers={"Content-Encoding": coding})]) as server:
        answer = openai_client(server).chat.completions.create(model="m", messages=HELLO)
    (call,) = calls_in(home)

    assert answer.choices[0].message.content == "Hello there"
    assert call.response == plain
    assert (call["response.encoding"], call["response.wire_bytes"]) == (coding, len(packed))
    assert call["input_tokens"] == 12


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_coded_stream_is_stored_plain_and_timed(home: Home, capture: object, coding: str) -> None:
    """A proxy may pack events too."""
    plain = b"".join(chat_stream(["Hel", "lo"]).chunks or ())
    packed = _coded(coding, plain)
    chunks = [packed[at : at + 40] for at in range(0, len(packed), 40)]
    reply = Reply(chunks=chunks, type="text/event-stream", headers={"Content-Encoding": coding})
    with Server([reply]) as server:
        list(openai_client(server).chat.completions.create(model="m", messages=HELLO, stream=True))
    (call,) = calls_in(home)

    assert call.response == plain
    assert (call.span.status, call["output_tokens"]) == ("ok", 2)
    assert 0 < call["first_token_ns"] <= call.span.duration_ns


def test_a_coded_request_is_stored_plain(home: Home, capture: object) -> None:
    """What was packed on its way out is known by its coding."""
    plain = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    with Server([chat()]) as server:
        httpx.post(
            f"{server.url}/v1/chat/completions",
            content=gzip.compress(plain),
            headers={"Content-Encoding": "gzip"},
        )
    (call,) = calls_in(home)

    assert call.request == plain
    assert call["request.encoding"] == "gzip"
    assert call["request.wire_bytes"] == len(server.seen[0].body)
    assert call["model"] == "m"


def test_what_is_not_coded_as_its_headers_say_is_kept_as_it_came(
    home: Home, capture: object
) -> None:
    """The SDK fails on it, and the bytes are what one wants to see then."""
    plain = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    coded = {"Content-Encoding": "gzip"}
    with (
        Server([Reply(body=chat().body, headers=coded)]) as server,
        pytest.raises(httpx.DecodingError),
    ):
        httpx.post(f"{server.url}/v1/chat/completions", content=plain, headers=coded)
    (call,) = calls_in(home)

    assert (call.request, call.response) == (plain, chat().body)
    assert call["request.undecoded"] is True
    assert call["response.undecoded"] is True


# --- Anthropic and Gemini, over httpx2 ------------------------------------------------------------


def test_a_call_of_the_anthropic_sdk_is_captured(home: Home, capture: object) -> None:
    """Cache tokens, cache markers and where they stand, the tool that was asked for."""
    with Server([claude(calls=True)]) as server:
        claude_client(server).messages.create(
            model="claude-opus-5",
            max_tokens=50,
            system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            messages=HELLO,
        )
    call = one(home, server)

    assert (call.span.name, call["provider"]) == ("messages", "anthropic")
    assert (call["cache_read_tokens"], call["cache_write_tokens"]) == (1500, 2000)
    assert (call["cache_control"], call["cache_control.at"]) == (1, "system")
    assert (call["tool_calls"], call["tool_call.0.id"]) == (1, "toolu_7")
    assert (call["request_id"], call["max_tokens"]) == ("req_claude_1", 50)


def test_the_time_that_a_model_thinks_is_told(home: Home, capture: object) -> None:
    """From the first thought to the first word; `show` says when the first token came."""
    with (
        Server([claude_stream()]) as server,
        claude_client(server).messages.stream(
            model="claude-opus-5", max_tokens=50, messages=HELLO
        ) as stream,
    ):
        text = stream.get_final_text()
    call = one(home, server)

    assert text == "Hi"
    assert (call.span.status, call["finish_reason"]) == ("ok", "stop")
    assert 0 <= call["thinking_ns"] <= call.span.duration_ns
    with vestige.open(home.root) as debugger:
        shown = str(debugger.show(call.span.id))
    assert "first token after" in shown and "thinking" in shown


def test_an_async_stream_of_the_anthropic_sdk_is_captured(home: Home, capture: object) -> None:
    """httpx2, async."""

    async def main() -> str:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
        async with (
            client,
            client.messages.stream(model="m", max_tokens=50, messages=HELLO) as stream,
        ):
            return await stream.get_final_text()

    with Server([claude_stream()]) as server:
        assert asyncio.run(main()) == "Hi"

    assert one(home, server)["output_tokens"] == 9


@pytest.mark.slow
def test_calls_of_the_gemini_sdk_are_captured(home: Home, capture: object) -> None:
    """The model is in the path; whole and streamed."""
    with Server([gemini(), gemini_stream(["Hel", "lo"])]) as server:
        client = gemini_client(server)
        models = client.models
        models.generate_content(model="gemini-2.5-flash", contents="Grüße")
        list(models.generate_content_stream(model="gemini-2.5-flash", contents="Grüße"))
    plain, streamed = calls_in(home)

    assert [call.request for call in (plain, streamed)] == [seen.body for seen in server.seen]
    assert [call.response for call in (plain, streamed)] == [seen.sent for seen in server.seen]
    assert plain["model"] == streamed["model"] == "gemini-2.5-flash"
    assert [plain.span.name, streamed.span.name] == ["generateContent", "streamGenerateContent"]
    assert plain["input_tokens"] == streamed["input_tokens"] == 6
    assert [call.span.status for call in (plain, streamed)] == ["ok", "ok"]


@pytest.mark.slow
def test_an_async_call_of_the_gemini_sdk_is_captured(home: Home, capture: object) -> None:
    """The SDK prefers aiohttp where that is installed, httpx2 elsewhere: captured once, either
    way.
    """

    async def main() -> None:
        client = gemini_client(server)
        await client.aio.models.generate_content(model="gemini-2.5-flash", contents="Grüße")
        await client.aio.aclose()

    with Server([gemini()]) as server:
        asyncio.run(main())

    assert one(home, server)["output_tokens"] == 2


# --- who made the call ----------------------------------------------------------------------------


@pytest.mark.slow
def test_twenty_concurrent_tasks_get_their_own_parents(home: Home, capture: object) -> None:
    """The ambient span of the task that makes the call."""

    async def step(client: openai.AsyncOpenAI, run: vestige.Span, number: int) -> None:
        async with run.child(f"step {number}"):
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": f"number {number}"}]
            )

    async def main() -> None:
        async with async_openai_client(server) as client, recorder.run("agent") as run:
            await asyncio.gather(*(step(client, run, number) for number in range(20)))

    recorder = vestige.Recorder(home)
    with Server(lambda seen: chat()) as server:
        asyncio.run(main())

    _assert_right_parents(home)


@pytest.mark.slow
def test_twenty_concurrent_threads_get_their_own_parents(home: Home, capture: object) -> None:
    """The same for threads."""

    def step(number: int) -> None:
        with run.child(f"step {number}"):
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": f"number {number}"}]
            )

    with Server(lambda seen: chat()) as server, vestige.Recorder(home).run("agent") as run:
        client = openai_client(server)
        threads = [threading.Thread(target=step, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _assert_right_parents(home)


def _assert_right_parents(home: Home) -> None:
    calls, spans = calls_in(home), spans_in(home)

    assert len(calls) == 20
    for call in calls:
        number = spans[str(call.span.parent_id)].name.removeprefix("step ")
        assert f'"number {number}"'.encode() in call.request


def test_a_call_outside_any_span_belongs_to_the_process(home: Home, capture: object) -> None:
    """It is not lost for want of a run."""
    with Server([chat()]) as server:
        openai_client(server).chat.completions.create(model="m", messages=HELLO)
    (call,) = calls_in(home)

    assert spans_in(home)[str(call.span.parent_id)].type == "process"


def test_a_call_that_warms_the_cache_is_marked(home: Home, capture: object) -> None:
    """`with vestige.warm():` and nothing else."""
    with Server([chat(), chat()]) as server:
        client = openai_client(server)
        with vestige.warm():
            client.chat.completions.create(model="m", messages=HELLO)
        client.chat.completions.create(model="m", messages=HELLO)

    assert [call["warm"] for call in calls_in(home)] == [True, None]


# --- HTTP/2, streams of one's own, transports of one's own ----------------------------------------


def test_a_body_that_is_an_iterator_is_captured_as_it_passes(home: Home, capture: object) -> None:
    """Consumed once, by the client."""
    parts = [b'{"model": "m", ', b'"messages": [', b'{"role": "user", "content": "hi"}]}']
    sent = []

    def body() -> Iterator[bytes]:
        for part in parts:
            sent.append(part)
            yield part

    with Server([chat()]) as server:
        httpx.post(f"{server.url}/v1/chat/completions", content=body())
    (call,) = calls_in(home)

    assert sent == parts
    assert call.request == server.seen[0].body == b"".join(parts)
    assert (call["request.streamed"], call["model"]) == (True, "m")


@pytest.mark.parametrize("module", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_a_transport_that_is_not_the_network_is_not_captured(
    home: Home, capture: object, module: Any
) -> None:
    """A mock answers without a wire: nothing went out, and nothing is recorded."""
    transport = module.MockTransport(lambda request: module.Response(200, json={}))
    with module.Client(transport=transport) as client:
        client.post("https://api.openai.com/v1/chat/completions", json={"messages": []})
    vestige.default_recorder()

    assert calls_in(home) == []


def test_connections_are_used_again(home: Home, capture: object) -> None:
    """The wrapped stream gives its connection back when it is read to its end."""
    with Server(lambda seen: chat()) as server:
        client = openai_client(server)
        for _ in range(3):
            client.chat.completions.create(model="m", messages=HELLO)

    assert len({seen.connection for seen in server.seen}) == 1
