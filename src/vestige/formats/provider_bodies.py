"""Requests and responses in the shapes of providers, which queries and checks parse.

    OPENAI_RESPONSES.render_request(items)
    ANTHROPIC.render_response(blocks, "claude-sonnet-4-5", "end_turn")

Logs of coding agents have the messages of a conversation without the requests around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from vestige.limits import BODY_MAX
from vestige.record.coercion import clean_text, truncate

Object = dict[str, Any]


class WireShape(msgspec.Struct, frozen=True):
    """The frame that a provider puts around messages."""

    provider: str
    render_request: Callable[[list[Object]], Object]
    """The messages since the answer before."""
    render_response: Callable[[list[Object], str | None, str | None], Object]
    """Parts of an answer, the model and the reason why it ended."""
    is_exact: bool = False
    """The request is complete, as it was sent."""


def _anthropic_response(parts: list[Object], model: str | None, reason: str | None) -> Object:
    return {
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": parts,
        "stop_reason": reason,
    }


def _openai_response(parts: list[Object], model: str | None, reason: str | None) -> Object:
    status = "completed" if reason in (None, "stop", "tool_calls") else reason
    return {"object": "response", "status": status, "model": model, "output": parts}


def _chat_response(parts: list[Object], model: str | None, reason: str | None) -> Object:
    message: Object = {"role": "assistant", "content": None}
    texts = [str(part["text"]) for part in parts if "text" in part]
    if texts:
        message["content"] = "\n".join(texts)
    thoughts = [str(part["thinking"]) for part in parts if "thinking" in part]
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [part["call"] for part in parts if "call" in part]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"object": "chat.completion", "model": model, "choices": [choice]}


def _gemini_response(parts: list[Object], model: str | None, reason: str | None) -> Object:
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": reason}
    return {"candidates": [candidate], "modelVersion": model}


ANTHROPIC: Final = WireShape("anthropic", lambda each: {"messages": each}, _anthropic_response)
OPENAI_RESPONSES: Final = WireShape("openai", lambda each: {"input": each}, _openai_response)
OPENAI_CHAT: Final = WireShape("openai", lambda each: {"messages": each}, _chat_response)
"""Parts of an answer are `{"text"}`, `{"thinking"}` and `{"call": {...}}`."""
GEMINI: Final = WireShape("google", lambda each: {"contents": each}, _gemini_response)


def render_json(value: Any) -> str:
    """Return JSON text of limited length; lone surrogates are written out."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_clean(value)).decode()
    return truncate(text, BODY_MAX)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value
