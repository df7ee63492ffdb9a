"""Answers of providers, for the loopback server: whole, streamed, refused."""

from __future__ import annotations

import json
from typing import Any

from support.provider_server import Reply


def data(event: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(event)}\n\n".encode()


def chat(text: str = "Hello there", *, model: str = "gpt-5-mini", calls: Any = None) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else text}
    if calls:
        message["tool_calls"] = calls
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }
    # Odd blanks: what is captured must be the bytes, not what they mean.
    return Reply(body=json.dumps(answer, indent=1).encode(), headers={"x-request-id": "req_chat_1"})


def chat_call(call_id: str = "call_7", name: str = "search", arguments: str = '{"q": "x"}') -> Any:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_chunks(words: list[str]) -> list[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 1}
        return data({**head, "model": "gpt-5-mini", "choices": [choice], **more})

    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words),
        chunk({}, "stop"),
        data(
            {
                "id": "chatcmpl-2",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "gpt-5-mini",
                "choices": [],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            }
        ),
        b"data: [DONE]\n\n",
    ]


def chat_stream(words: list[str], **more: Any) -> Reply:
    return Reply(chunks=chat_chunks(words), type="text/event-stream", **more)


def refusal(status: int, message: str = "Too many requests") -> Reply:
    error = {"error": {"message": message, "type": "requests", "code": "rate_limit_exceeded"}}
    return Reply(status, json.dumps(error).encode(), headers={"retry-after-ms": "1"})


def claude(text: str = "Hello there", *, calls: bool = False) -> Reply:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if calls:
        content.append({"type": "tool_use", "id": "toolu_7", "name": "search", "input": {"q": "x"}})
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 4,
            "cache_creation_input_tokens": 2000,
            "cache_read_input_tokens": 1500,
        },
    }
    return Reply(body=json.dumps(answer).encode(), headers={"request-id": "req_claude_1"})


def claude_stream(**more: Any) -> Reply:
    message = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "Hm"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "text", "text": ""},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    chunks = [data(event, event["type"]) for event in events]
    return Reply(chunks=chunks, type="text/event-stream", **more)


def gemini(text: str = "Hello there") -> Reply:
    return Reply(body=json.dumps(_gemini_answer(text)).encode())


def gemini_stream(words: list[str]) -> Reply:
    chunks = [f"data: {json.dumps(_gemini_answer(word))}\r\n\r\n".encode() for word in words]
    return Reply(chunks=chunks, type="text/event-stream")


def _gemini_answer(text: str) -> dict[str, Any]:
    return {
        "candidates": [
            {
                "content": {"parts": [{"text": text}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 6,
            "candidatesTokenCount": 2,
            "totalTokenCount": 8,
        },
        "modelVersion": "gemini-2.5-flash",
    }
