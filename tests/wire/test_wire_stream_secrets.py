"""Secrets in streamed answers: split over events, chunks and codings, they reach no byte of
ours.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import openai
import pytest
import requests

import vestige
from support.provider_answers import chat_chunks, data, gemini_stream
from support.provider_calls import Call, calls_in
from support.provider_server import Reply, Server
from vestige.home import Home
from vestige.providers.parsing import parse_response
from vestige.record.redaction.redactor import Redactor

SHAPED = "sk-proj-Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw"
REGISTERED = "zebra-quilt-mango-4417"
KEYED = "hunter2-is-not-enough"
SECRETS = (SHAPED, REGISTERED, KEYED)
TEXT = f"The key is {SHAPED}, and the pass phrase {REGISTERED}."
ARGUMENTS = json.dumps({"api_key": KEYED, "limit": 5, "note": SHAPED})
MESSAGES: Any = [{"role": "user", "content": "q"}]


def redacted(text: str) -> str:
    redactor = Redactor()
    redactor.add_secret(REGISTERED)
    return redactor.text(text)


def cut(text: str, length: int = 4) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


def leaks(home: Home) -> list[str]:
    """Also of what events spell: their framing removed, each part of a secret is next to the
    other.
    """
    found = []
    for path in sorted(Path(home.root).rglob("*")):
        raw = path.read_bytes() if path.is_file() else b""
        found += [f"{secret} in {path}" for secret in SECRETS if secret.encode() in raw]
    return found


def texts_of(call: Call) -> tuple[str, list[str]]:
    response = parse_response(call.response)
    assert response is not None
    return response.text, [each.arguments for each in response.calls]


def chat_tool_chunks(pieces: list[str]) -> list[bytes]:
    def chunk(call: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}
        head = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 1}
        return data({**head, "model": "gpt-5-mini", "choices": [choice]})

    first = {"id": "call_1", "type": "function", "function": {"name": "login", "arguments": ""}}
    rest = [chunk({"function": {"arguments": piece}}) for piece in pieces]
    return [*chat_chunks(cut(TEXT))[:-3], chunk(first), *rest, b"data: [DONE]\n\n"]


def claude_chunks() -> list[bytes]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    tool = {"type": "tool_use", "id": "toolu_1", "name": "login", "input": {}}
    text = {"type": "text", "text": ""}
    events: list[Any] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": text},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": each},
            }
            for each in cut(TEXT)
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        *(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": each},
            }
            for each in cut(ARGUMENTS, 3)
        ),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    return [data(event, event["type"]) for event in events]


def stream(chunks: list[bytes], **more: Any) -> Reply:
    return Reply(chunks=chunks, type="text/event-stream", **more)


# --- real SDKs ------------------------------------------------------------------------------------


def openai_sync(url: str) -> str:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k-1234567890")
    events = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    return "".join(event.choices[0].delta.content or "" for event in events if event.choices)


def openai_async(url: str) -> str:
    async def ask() -> str:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k-1234567890")
        events = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        return "".join(
            [event.choices[0].delta.content or "" async for event in events if event.choices]
        )

    return asyncio.run(ask())


def claude_sync(url: str) -> str:
    client = anthropic.Anthropic(base_url=url, api_key="k-1234567890")
    with client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as events:
        return "".join(events.text_stream)


def claude_async(url: str) -> str:
    async def ask() -> str:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="k-1234567890")
        async with client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as events:
            return "".join([text async for text in events.text_stream])

    return asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "chunks"),
    [
        (openai_sync, chat_tool_chunks(cut(ARGUMENTS, 3))),
        (openai_async, chat_tool_chunks(cut(ARGUMENTS, 1))),
        (claude_sync, claude_chunks()),
        (claude_async, claude_chunks()),
    ],
)
def test_text_and_tool_arguments_that_an_sdk_streams_are_stored_redacted(
    home: Home, ask: Callable[[str], str], chunks: list[bytes]
) -> None:
    with (
        vestige.capture_http(),
        Server([stream(chunks)]) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        recorder.secret(REGISTERED)
        received = ask(server.url)
    before = leaks(home)
    (call,) = calls_in(home)

    assert received == TEXT, "the program sees what the server sent"
    assert texts_of(call) == (redacted(TEXT), [redacted(ARGUMENTS)])
    assert (before, leaks(home)) == ([], [])


# --- clients, framings, codings -------------------------------------------------------------------


def with_httpx(url: str) -> None:
    with httpx.stream("POST", url, json={"model": "m", "messages": MESSAGES}) as response:
        for _ in response.iter_bytes(7):
            pass


def with_requests(url: str) -> None:
    response = requests.post(
        url, json={"model": "m", "messages": MESSAGES}, stream=True, timeout=120
    )
    for _ in response.iter_content(5):
        pass


def with_aiohttp(url: str) -> None:
    async def ask() -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json={"model": "m", "messages": MESSAGES}) as response,
        ):
            async for _ in response.content.iter_any():
                pass

    asyncio.run(ask())


BODY = b"".join(chat_chunks(cut(TEXT, 3)))
CRLF = BODY.replace(b"\n", b"\r\n")
GEMINI = b"".join(gemini_stream(cut(TEXT, 2)).chunks or ())
OLLAMA = b"".join(
    json.dumps(
        {"model": "m", "message": {"role": "assistant", "content": each}, "done": False}
    ).encode()
    + b"\n"
    for each in cut(TEXT)
)


def pieces(body: bytes, *lengths: int) -> list[bytes]:
    found, at = [], 0
    for length in cycle(lengths):
        if at >= len(body):
            return found
        found.append(body[at : at + length])
        at += length
    raise AssertionError("no lengths")


@pytest.mark.slow
@pytest.mark.parametrize("ask", [with_httpx, with_requests, with_aiohttp])
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY, {}),
        (CRLF, {}),
        (GEMINI, {}),
        (OLLAMA, {}),
        (gzip.compress(BODY), {"content-encoding": "gzip"}),
    ],
)
def test_a_stream_in_odd_chunks_is_stored_redacted(
    home: Home, ask: Callable[[str], None], body: bytes, headers: dict[str, str]
) -> None:
    with (
        vestige.capture_http(),
        Server([stream(pieces(body, 1, 40, 3, 200), headers=headers)]) as server,
        vestige.Recorder(home, secrets=[REGISTERED]) as recorder,
        recorder.run("agent"),
    ):
        ask(f"{server.url}/v1/chat/completions")
    (call,) = calls_in(home)

    assert texts_of(call)[0] == redacted(TEXT)
    assert leaks(home) == []


@pytest.mark.parametrize("ask", [with_httpx, with_requests, with_aiohttp])
def test_a_stream_without_secrets_is_stored_byte_for_byte(
    home: Home, ask: Callable[[str], None]
) -> None:
    words = ["The ", "password ", "is ", "not ", 'in "', "this\\ ", "text", " é🦓", "\n", "token"]
    replies = [stream(chat_chunks(words)), stream(pieces(CRLF[:400], 9))]
    with (
        vestige.capture_http(),
        Server(list(replies)) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        for _ in replies:
            ask(f"{server.url}/v1/chat/completions")
    calls = calls_in(home)

    assert [call.response for call in calls] == [seen.sent for seen in server.seen]


def test_a_stream_that_is_reset_is_stored_redacted_as_far_as_it_came(home: Home) -> None:
    chunks = chat_chunks(cut(TEXT))
    with (
        vestige.capture_http(),
        Server([stream(chunks, reset_after=len(chunks) - 4)]) as server,
        vestige.Recorder(home, secrets=[REGISTERED]) as recorder,
        recorder.run("agent"),
        pytest.raises(httpx.HTTPError),
    ):
        with_httpx(f"{server.url}/v1/chat/completions")
    (call,) = calls_in(home)

    assert call["response.partial"] is True
    assert texts_of(call)[0].startswith("The key is sk-…redacted…0Qw")
    assert leaks(home) == []


@pytest.mark.slow
def test_a_long_stream_is_stored_redacted(home: Home) -> None:
    """Longer than a journal line: its body goes to a file, step by step."""
    filler = ["word "] * 4000
    with (
        vestige.capture_http(),
        Server([stream([b"".join(chat_chunks([*filler, *cut(TEXT), *filler]))])]) as server,
        vestige.Recorder(home, secrets=[REGISTERED]) as recorder,
        recorder.run("agent"),
    ):
        with_httpx(f"{server.url}/v1/chat/completions")
    (call,) = calls_in(home)

    assert texts_of(call)[0] == redacted("".join([*filler, TEXT, *filler]))
    assert leaks(home) == []
