"""GenAI attributes of an exported span, for tools that read the OpenTelemetry conventions.

to_genai_attributes(span, input, output)    # {"gen_ai.operation.name": "chat", ...}
"""

from __future__ import annotations

from typing import Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import Object
from vestige.limits import MIB
from vestige.providers.chat_types import Message, ToolCall
from vestige.providers.parsing import parse_request, parse_response
from vestige.record.run import SpanInfo

_BODY_MAX: Final = MIB
"""A longer body is not repeated as messages."""
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


def to_genai_attributes(span: SpanInfo, input: bytes | None, output: bytes | None) -> Object:
    attributes: Object = {}
    if span.type in _OPERATIONS and (span.type != "run" or span.parent_id is None):
        attributes["gen_ai.operation.name"] = _OPERATIONS[span.type]
    for ours, theirs in _NAMES.get(span.type, {}).items():
        if span.attributes.get(ours) is not None:
            attributes[theirs] = span.attributes[ours]
    if span.type == "run" and span.parent_id is None:
        attributes["gen_ai.agent.name"] = span.name
    elif span.type == "tool":
        attributes.setdefault("gen_ai.tool.name", span.name)
        attributes["gen_ai.tool.call.arguments"] = _decode_body(input)
        attributes["gen_ai.tool.call.result"] = _decode_body(output)
    elif span.type == "llm":
        reason = span.attributes.get("finish_reason")
        if isinstance(reason, str):
            attributes["gen_ai.response.finish_reasons"] = [reason]
        attributes["gen_ai.input.messages"] = _input_messages(span, input)
        attributes["gen_ai.output.messages"] = _output_messages(span, output)
    return {key: value for key, value in attributes.items() if value is not None}


def _decode_body(body: bytes | None) -> str | None:
    if body is None or len(body) > _BODY_MAX:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _input_messages(span: SpanInfo, body: bytes | None) -> str | None:
    text = _decode_body(body)
    request = parse_request(text, _provider(span)) if text is not None else None
    return None if request is None else _to_json([_message(each) for each in request.messages])


def _output_messages(span: SpanInfo, body: bytes | None) -> str | None:
    text = _decode_body(body)
    response = parse_response(text, _provider(span)) if text is not None else None
    if response is None or response.error:
        return None
    parts = [*_text_parts(response.text), *map(_tool_call_part, response.calls)]
    reason = {"tool_calls": "tool_call"}.get(str(response.finish_reason), response.finish_reason)
    return _to_json([{"role": "assistant", "parts": parts, "finish_reason": reason or "stop"}])


def _provider(span: SpanInfo) -> str | None:
    provider = span.attributes.get("provider")
    return provider if isinstance(provider, str) else None


def _message(message: Message) -> Object:
    parts: list[Object] = [*_text_parts(message.text), *map(_tool_call_part, message.calls)]
    parts += [
        {"type": "tool_call_response", "id": result.call_id, "response": result.text}
        for result in message.results
    ]
    return {"role": message.role, "parts": parts}


def _text_parts(text: str) -> list[Object]:
    return [{"type": "text", "content": text}] if text else []


def _tool_call_part(call: ToolCall) -> Object:
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = call.arguments
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}


def _to_json(value: Any) -> str | None:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError):  # lone surrogates, which some servers send
        return None
