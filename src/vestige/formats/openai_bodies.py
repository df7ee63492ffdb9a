"""Requests and responses in OpenAI's shape, built from stored messages.

Queries and checks parse them like recorded ones. Spans with them have the attribute
`message_index`, so rules about the bytes on the wire are not applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from vestige.formats.record_builder import encode_json
from vestige.providers.chat_types import ToolCall

Object = dict[str, Any]

LABEL_MAX: Final = 2_000
"""Characters of an error message, or of a scalar that is stored beside messages."""


class Call(msgspec.Struct, frozen=True):
    """A tool call of a message."""

    id: str | None
    name: str
    arguments: str
    """JSON text."""


def to_tool_calls(calls: Iterable[Call | ToolCall]) -> list[Object]:
    """Return the member `tool_calls` of a message."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def render_request(messages: list[Object], model: str | None = None) -> str | None:
    """Return a request with the messages; None without any."""
    if not messages:
        return None
    return encode_json(({"model": model} if model else {}) | {"messages": messages})


def render_response(
    content: Any,
    calls: Iterable[Call] = (),
    *,
    thinking: str = "",
    model: str | None = None,
    finish_reason: str | None = None,
) -> str:
    """Return a chat completion with one answer."""
    answer: Object = {"role": "assistant", "content": content}
    if thinking:
        answer["reasoning_content"] = thinking
    requested = to_tool_calls(calls)
    if requested:
        answer["tool_calls"] = requested
    reason = finish_reason or ("tool_calls" if requested else "stop")
    choice = {"index": 0, "message": answer, "finish_reason": reason}
    return encode_json({"object": "chat.completion", "model": model, "choices": [choice]})
