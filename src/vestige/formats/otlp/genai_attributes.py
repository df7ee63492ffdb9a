"""What a span of ours is called by the GenAI conventions: added to it, for those who read them.

added(span, input, output)      # {"gen_ai.operation.name": "chat", "gen_ai.request.model": ...}
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.otlp.any_value import Object
from vestige.limits import MIB
from vestige.providers.models import Message, ToolCall
from vestige.providers.parsing import parse_request, parse_response
from vestige.record.run import SpanInfo

_TOLD_MAX: Final = MIB
"""A longer body is not told a second time, as messages."""
_OPERATIONS: Final = {
    "run": "invoke_agent",
    "llm": "chat",
    "tool": "execute_tool",
    "embedding": "embeddings",
    "retriever": "retrieval",
}
_NAMES: Final = {
    "llm": {
        "model": "gen_ai.request.model",
        "response.model": "gen_ai.response.model",
        "provider": "gen_ai.provider.name",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
        "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    },
    "tool": {"tool_name": "gen_ai.tool.name", "tool_call_id": "gen_ai.tool.call.id"},
    "http": {"status_code": "http.response.status_code"},
}
_NAMES["embedding"] = _NAMES["llm"]


def added(span: SpanInfo, given: bytes | None, came: bytes | None) -> Object:
    """What can be told of it by those names."""
    told: Object = {}
    if span.type in _OPERATIONS and (span.type != "run" or span.parent_id is None):
        told["gen_ai.operation.name"] = _OPERATIONS[span.type]
    for ours, theirs in _NAMES.get(span.type, {}).items():
        if span.attributes.get(ours) is not None:
            told[theirs] = span.attributes[ours]
    if span.type == "run" and span.parent_id is None:
        told["gen_ai.agent.name"] = span.name
    elif span.type == "tool":
        told.setdefault("gen_ai.tool.name", span.name)
        told |= {"gen_ai.tool.call.arguments": _text(given), "gen_ai.tool.call.result": _text(came)}
    elif span.type == "llm":
        reason = span.attributes.get("finish_reason")
        if isinstance(reason, str):
            told["gen_ai.response.finish_reasons"] = [reason]
        told |= _asked(span, given) | _answered(span, came)
    return {key: value for key, value in told.items() if value is not None}


def _text(body: bytes | None) -> str | None:
    if body is None or len(body) > _TOLD_MAX:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _asked(span: SpanInfo, body: bytes | None) -> Object:
    text = _text(body)
    request = parse_request(text, _hint(span)) if text is not None else None
    if request is None:
        return {}
    return {"gen_ai.input.messages": _json([_message(each) for each in request.messages])}


def _answered(span: SpanInfo, body: bytes | None) -> Object:
    text = _text(body)
    response = parse_response(text, _hint(span)) if text is not None else None
    if response is None or response.error:
        return {}
    parts = [*_said(response.text), *map(_call, response.calls)]
    reason = {"tool_calls": "tool_call"}.get(str(response.finish_reason), response.finish_reason)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason or "stop"}
    return {"gen_ai.output.messages": _json([message])}


def _hint(span: SpanInfo) -> str | None:
    provider = span.attributes.get("provider")
    return provider if isinstance(provider, str) else None


def _message(message: Message) -> Object:
    parts: list[Object] = [*_said(message.text), *map(_call, message.calls)]
    parts += [
        {"type": "tool_call_response", "id": result.call_id, "response": result.text}
        for result in message.results
    ]
    return {"role": message.role, "parts": parts}


def _said(text: str) -> list[Object]:
    return [{"type": "text", "content": text}] if text else []


def _call(call: ToolCall) -> Object:
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = call.arguments
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}


def _json(value: Any) -> str | None:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError):  # half a character, as some servers send it
        return None
