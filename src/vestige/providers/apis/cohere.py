"""Cohere's chat API, version 2. Requests have the form of chat completions.

Usage: `billed_units` is what Cohere charges; `tokens` also counts its own prompt and is used if
there are no billed units. Text before tool calls is the `tool_plan`.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.providers.apis import openai
from vestige.providers.chat_types import Request, Response, ToolCall, Usage
from vestige.providers.json_access import (
    as_dict,
    as_list,
    as_str,
    dicts,
    error_text,
    find_int,
    find_str,
    join_texts,
    json_text,
)
from vestige.providers.message_parts import read_parts

PROVIDER = "cohere"

FINISH = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR": "error",
    "ERROR_LIMIT": "length",
    "ERROR_TOXIC": "content_filter",
    "TIMEOUT": "error",
}

EVENTS = frozenset(
    {
        "message-start",
        "content-start",
        "content-delta",
        "tool-plan-delta",
        "tool-call-start",
        "tool-call-delta",
        "message-end",
    }
)


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a chat request; `data` is `body`, decoded."""
    request = openai.read_request(body, data)
    messages = []
    for item, message in zip(as_list(data.get("messages")), request.messages, strict=True):
        plan = as_str(as_dict(item).get("tool_plan"))
        if plan and not message.text:
            parts = [*read_parts(plan), *message.parts]
            message = msgspec.structs.replace(message, text=plan, parts=parts)
        messages.append(message)
    return msgspec.structs.replace(request, provider=PROVIDER, messages=messages)


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    message = data.get("message")
    if isinstance(message, str):  # an error body
        return _make_response(data, {}, message)
    return _make_response(data, as_dict(message), error_text(data.get("error")))


def _make_response(data: dict[str, Any], message: dict[str, Any], error: str | None) -> Response:
    calls = [_call(call) for call in dicts(message.get("tool_calls"))]
    content = message.get("content")
    plan = as_str(message.get("tool_plan"))
    reason = data.get("finish_reason")
    finish = FINISH.get(reason, "other") if isinstance(reason, str) else None
    parts = [*read_parts(plan), *read_parts(content), *map(openai.call_part, calls)]
    return Response(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        text=join_texts([plan, openai.content_text(content)]),
        calls=calls,
        parts=parts,
        finish_reason="error" if error else finish,
        usage=_usage(as_dict(data.get("usage"))),
        error=error,
    )


def _call(item: dict[str, Any]) -> ToolCall:
    function = as_dict(item.get("function"))
    return ToolCall(
        id=find_str(item.get("id")),
        name=as_str(function.get("name")),
        arguments=json_text(function.get("arguments") or ""),
    )


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the events of a streamed answer."""
    plan: list[str] = []
    blocks: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[str, Any]] = {}
    data: dict[str, Any] = {}
    error: str | None = None
    for event in events:
        kind = as_str(event.get("type"))
        number = event.get("index")
        index = number if isinstance(number, int) else 0
        delta = as_dict(event.get("delta"))
        message = as_dict(delta.get("message"))
        if kind in ("content-start", "content-delta"):
            _add_content(blocks.setdefault(index, {}), as_dict(message.get("content")))
        elif kind == "tool-plan-delta":
            plan.append(as_str(message.get("tool_plan")))
        elif kind in ("tool-call-start", "tool-call-delta"):
            _add_call(calls.setdefault(index, {}), as_dict(message.get("tool_calls")))
        elif kind == "message-end":
            data |= {k: delta.get(k) for k in ("finish_reason", "usage")}
            error = find_str(delta.get("error")) or error
    joined = {
        "tool_plan": "".join(plan),
        "content": [_join(block) for _, block in sorted(blocks.items())],
        "tool_calls": [
            {"id": call.get("id"), "function": _join(call)} for _, call in sorted(calls.items())
        ],
    }
    return _make_response(data, joined, error)


def _add_content(block: dict[str, Any], content: dict[str, Any]) -> None:
    for key in ("text", "thinking"):
        if isinstance(content.get(key), str):
            block.setdefault(key, []).append(content[key])
            block.setdefault("type", key)


def _add_call(call: dict[str, Any], fields: dict[str, Any]) -> None:
    function = as_dict(fields.get("function"))
    call.setdefault("id", fields.get("id"))
    if function.get("name"):
        call.setdefault("name", function["name"])
    call.setdefault("arguments", []).append(as_str(function.get("arguments")))


def _join(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: "".join(v) if isinstance(v, list) else v for k, v in fields.items()}


def _usage(usage: dict[str, Any]) -> Usage:
    billed, counted = as_dict(usage.get("billed_units")), as_dict(usage.get("tokens"))

    def count(name: str) -> int | None:
        found = find_int(billed.get(name))
        return find_int(counted.get(name)) if found is None else found

    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_read_tokens=find_int(usage.get("cached_tokens")),
    )
