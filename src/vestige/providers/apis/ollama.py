"""Ollama's own API: `/api/chat` and `/api/generate`. Its requests are read as chat completions.

A stream is one JSON object a line; the last has `done` and the counts. Its tool calls have no ids.
"""

from __future__ import annotations

from typing import Any

from vestige.providers.apis.openai import call_part, read_message_parts
from vestige.providers.chat_types import MessagePart, Response, ToolCall, Usage
from vestige.providers.json_access import (
    as_dict,
    as_str,
    dicts,
    error_text,
    find_int,
    find_str,
    json_text,
)
from vestige.providers.message_parts import join_parts, read_parts

PROVIDER = "ollama"

FINISH = {"stop": "stop", "length": "length", "load": "load", "unload": "unload"}


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    return read_stream([data])


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the lines of a streamed answer."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    parts: list[MessagePart] = []
    model: str | None = None
    last: dict[str, Any] = {}
    error: str | None = None
    for event in events:
        message = as_dict(event.get("message"))
        texts.append(as_str(message.get("content")) or as_str(event.get("response")))
        calls += map(_call, dicts(message.get("tool_calls")))
        # `/api/generate` has its fields beside `done`, not in a message.
        parts += read_message_parts(message or {"thinking": event.get("thinking")}, [])
        parts += read_parts(event.get("response"))
        model = find_str(event.get("model")) or model
        error = error_text(event.get("error")) or error
        if event.get("done") is True:
            last = event
    finish = (
        "error" if error else FINISH.get(as_str(last.get("done_reason")), "stop") if last else None
    )
    return Response(
        provider=PROVIDER,
        model=model,
        text="".join(texts),
        calls=calls,
        parts=[*join_parts(parts), *map(call_part, calls)],
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=Usage(
            input_tokens=find_int(last.get("prompt_eval_count")),
            output_tokens=find_int(last.get("eval_count")),
        ),
        error=error,
    )


def _call(item: dict[str, Any]) -> ToolCall:
    function = as_dict(item.get("function"))
    return ToolCall(
        id=find_str(item.get("id")),
        name=as_str(function.get("name")),
        arguments=json_text(function.get("arguments", "")),
    )
