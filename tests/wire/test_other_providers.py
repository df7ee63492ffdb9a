"""Calls of Bedrock, Cohere and Ollama, and calls without messages, captured over HTTP."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import requests

import vestige
from support.provider_calls import calls_in
from support.provider_server import Reply, Server
from vestige.home import Home
from vestige.providers.parsing import parse_response
from vestige.wire.aws_event_stream import encode_frames
from vestige.wire.content_encoding import decode

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "Hello?"}]}]}


@pytest.fixture(autouse=True)
def _capture(home: Home) -> Iterator[None]:
    with vestige.capture_http():
        yield


def frame(name: str, fields: dict[str, Any], kind: str = "event") -> bytes:
    """A frame of AWS's event stream, built from its documentation."""
    headers = b""
    for key, value in ((f":{kind}-type", name), (":message-type", kind)):
        headers += bytes([len(key)]) + key.encode() + b"\x07"
        headers += struct.pack(">H", len(value)) + value.encode()
    payload = json.dumps({**fields, "p": "abcdefgh"}).encode()
    head = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    data = head + struct.pack(">I", zlib.crc32(head)) + headers + payload
    return data + struct.pack(">I", zlib.crc32(data))


CONVERSATION = [
    frame("messageStart", {"role": "assistant"}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hel"}}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "lo é"}}),
    frame("messageStop", {"stopReason": "end_turn"}),
    frame("metadata", {"usage": {"inputTokens": 12, "outputTokens": 5}}),
]


def stream_reply(frames: list[bytes]) -> Reply:
    return Reply(chunks=frames, type="application/vnd.amazon.eventstream")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_converse_stream_is_recorded_as_readable_events(home: Home, size: int) -> None:
    """The program gets the bytes that the server sent, in whatever pieces they come."""
    sent = b"".join(CONVERSATION)
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    with Server([stream_reply(pieces)]) as server:
        url = f"{server.url}/model/{CLAUDE}/converse-stream"
        received = requests.post(url, json=QUESTION, timeout=120).content
    (call,) = calls_in(home)

    assert received == sent
    assert (call["model"], call["provider"]) == (CLAUDE, "bedrock")
    assert (call["input_tokens"], call["output_tokens"]) == (12, 5)
    assert (call["finish_reason"], call["response.encoding"]) == ("stop", "aws-eventstream")
    assert call["response.wire_bytes"] == len(sent)
    response = parse_response(call.response)
    assert response is not None
    assert response.text == "Hello é"
    assert "first_token_ns" in call.span.attributes


def test_recorded_events_can_be_framed_again() -> None:
    plain = decode(b"".join(CONVERSATION), "aws-eventstream", 10_000)
    assert plain is not None

    again = decode(b"".join(encode_frames(bytes(plain.data))), "aws-eventstream", 10_000)

    assert again is not None
    assert again.complete
    assert again.data == plain.data


def test_a_stream_of_invoke_model_is_the_stream_of_the_model(home: Home) -> None:
    from base64 import b64encode

    events = [
        {"type": "message_start", "message": {"model": "claude", "usage": {"input_tokens": 12}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    frames = [
        frame("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()})
        for event in events
    ]
    body: dict[str, Any] = {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello?"}],
    }
    with Server([stream_reply(frames)]) as server:
        url = f"{server.url}/model/{CLAUDE}/invoke-with-response-stream"
        requests.post(url, json=body, timeout=120)
    (call,) = calls_in(home)

    assert (call["input_tokens"], call["output_tokens"]) == (12, 5)
    assert call["finish_reason"] == "stop"
    response = parse_response(call.response)
    assert response is not None
    assert (response.provider, response.text) == ("anthropic", "Hi")


def test_bytes_that_are_not_an_event_stream_are_kept_as_they_came(home: Home) -> None:
    with Server([stream_reply([b"not frames at all, but long enough"])]) as server:
        url = f"{server.url}/model/{CLAUDE}/converse-stream"
        requests.post(url, json=QUESTION, timeout=120)
    (call,) = calls_in(home)

    assert call.response == b"not frames at all, but long enough"
    assert call["response.undecoded"] is True


def test_an_exception_in_a_stream_fails_the_call(home: Home) -> None:
    frames = [*CONVERSATION[:2], frame("throttlingException", {"message": "slow"}, "exception")]
    with Server([stream_reply(frames)]) as server:
        url = f"{server.url}/model/{CLAUDE}/converse-stream"
        requests.post(url, json=QUESTION, timeout=120)
    (call,) = calls_in(home)

    assert call.span.status == "error"
    assert call["error.message"] == "throttlingException: slow"


def test_ollama_and_cohere_are_known_by_path_and_body(home: Home) -> None:
    ollama = {"model": "l", "message": {"role": "assistant", "content": "Hi"}, "done": True}
    cohere = {
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        "usage": {"billed_units": {"input_tokens": 12, "output_tokens": 5}},
    }
    replies = [Reply(body=json.dumps(each).encode()) for each in (ollama, cohere)]
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
    with Server(replies) as server:
        requests.post(server.url + "/api/chat", json=body, timeout=120)
        requests.post(server.url + "/v2/chat", json=body, timeout=120)
    first, second = calls_in(home)

    assert (first["provider"], first.span.name, first["finish_reason"]) == (
        "ollama",
        "chat",
        "stop",
    )
    assert (second["provider"], second.span.name) == ("cohere", "chat")
    assert (second["input_tokens"], second["finish_reason"]) == (12, "stop")


OTHER_CALLS = [
    (
        "/v1/embeddings",
        {"model": "m", "input": ["a", "b"]},
        {
            "model": "m-1",
            "data": [{"embedding": [0.1, 0.2]}, {"embedding": [0.3, 0.4]}],
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        },
        "embedding",
        {"inputs": 2, "outputs": 2, "dimensions": 2, "input_tokens": 3, "model": "m"},
    ),
    (
        "/v2/embed",
        {"model": "m", "texts": ["a"]},
        {"embeddings": {"float": [[0.1]]}, "meta": {"billed_units": {"input_tokens": 2}}},
        "embedding",
        {"inputs": 1, "outputs": 1, "dimensions": 1, "input_tokens": 2},
    ),
    (
        "/v1/images/generations",
        {"model": "m", "prompt": "A door"},
        {"data": [{"b64_json": "iVBORw0KGgo="}]},
        "image",
        {"outputs": 1},
    ),
    (
        "/v1/moderations",
        {"model": "m", "input": "x"},
        {"results": [{"flagged": False}, {"flagged": True}]},
        "moderation",
        {"flagged": True},
    ),
    (
        "/v2/rerank",
        {"model": "m", "query": "q", "documents": ["a", "b"]},
        {"results": [{"index": 1, "relevance_score": 0.9}]},
        "rerank",
        {"inputs": 2, "outputs": 1},
    ),
]


@pytest.mark.parametrize(("path", "body", "reply", "span_type", "expected"), OTHER_CALLS)
def test_calls_without_messages_have_types_of_their_own(
    home: Home,
    path: str,
    body: dict[str, Any],
    reply: dict[str, Any],
    span_type: str,
    expected: dict[str, Any],
) -> None:
    with Server([Reply(body=json.dumps(reply).encode())]) as server:
        requests.post(server.url + path, json=body, timeout=120)
    (call,) = calls_in(home, span_type)

    assert {name: call[name] for name in expected} == expected


def test_speech_and_transcription_are_recorded(home: Home) -> None:
    """The audio itself is binary, and the model of an upload is in a form."""
    speech = b"ID3\xff\xfb\x90binary"
    replies = [Reply(body=speech, type="audio/mpeg"), Reply(body=b'{"text": "Hello there"}')]
    with Server(replies) as server:
        body: dict[str, Any] = {"model": "tts-1", "input": "Hello", "voice": "alloy"}
        requests.post(server.url + "/v1/audio/speech", json=body, timeout=120)
        files = {"file": ("a.wav", b"RIFF\xff\xfe")}
        url = server.url + "/v1/audio/transcriptions"
        requests.post(url, data={"model": "whisper-1"}, files=files, timeout=120)
    spoken, transcribed = calls_in(home, "speech", "transcription")

    assert (spoken.span.type, spoken["model"]) == ("speech", "tts-1")
    assert (spoken["input.characters"], spoken["output.bytes"]) == (5, len(speech))
    assert (transcribed.span.type, transcribed["model"]) == ("transcription", "whisper-1")
    assert transcribed["output.characters"] == 11


def test_a_failed_embedding_call_has_the_error_of_the_provider(home: Home) -> None:
    error = {"error": {"message": "no such model", "type": "invalid_request_error"}}
    with Server([Reply(status=404, body=json.dumps(error).encode())]) as server:
        requests.post(server.url + "/v1/embeddings", json={"model": "m", "input": "a"}, timeout=120)
    (call,) = calls_in(home, "embedding")

    assert call.span.status == "error"
    assert call["error.message"] == "invalid_request_error: no such model"
