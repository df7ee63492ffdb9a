"""Convert messages of every convention to messages of a chat completions request.

    parse_message({"role": "user", "parts": [{"type": "text", "content": "hi"}]})   # GenAI
    parse_flat_messages(attributes, "llm.input_messages.")                          # OpenInference
    parse_flat_messages(attributes, "gen_ai.prompt.")                               # OpenLLMetry
    ChatMessages().add_event("gen_ai.user.message", {"content": "hi"})              # events

A part of an unknown type is copied unchanged into the message's content.
"""

from __future__ import annotations

from typing import Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text, decode_json_text
from vestige.formats.otlp.bedrock_blocks import is_blocks, parse_blocks
from vestige.record.coercion import flat

_INDEX_MAX: Final = 10_000
"""Limit of an index in a flattened key such as `llm.input_messages.0.role`."""
_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_FINISH_REASONS: Final = {"tool_call": "tool_calls"}


def normalize_finish_reason(reason: Any) -> Any:
    return _FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None


def to_json_text(value: Any) -> str:
    """Return a tool's arguments or result as text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return str(flat(value))


# --- parts ----------------------------------------------------------------------------------------


def parse_message(message: Object) -> list[Object]:
    """Return the message, followed by a message for each tool result among its parts."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [message] if message.get("role") else []
    role = as_text(message.get("role")) or "user"
    content: list[Any] = []
    calls: list[Object] = []
    results: list[Object] = []
    for part in as_objects(parts):
        match part.get("type"):
            case "text":
                content.append({"type": "text", "text": as_text(part.get("content"))})
            case "tool_call":
                calls.append(_make_call(part.get("id"), part.get("name"), part.get("arguments")))
            case "tool_call_response":
                result = part.get("response", part.get("result"))
                results.append(
                    {
                        "role": "tool",
                        "tool_call_id": part.get("id"),
                        "content": to_json_text(result),
                    }
                )
            case _:
                content.append(part)
    if results and not content and not calls:
        return results
    converted: Object = {"role": role, "content": _simplify_content(content)}
    if calls:
        converted["tool_calls"] = calls
    if message.get("finish_reason") is not None:
        converted["finish_reason"] = message["finish_reason"]
    return [converted, *results]


def _simplify_content(parts: list[Any]) -> Any:
    if len(parts) == 1 and parts[0].get("type") == "text":
        return parts[0]["text"]
    return parts or None


def _make_call(id: Any, name: Any, arguments: Any) -> Object:
    return {
        "id": id if isinstance(id, str) else None,
        "type": "function",
        "function": {"name": as_text(name), "arguments": to_json_text(arguments)},
    }


def join_part_texts(parts: Any) -> str:
    """Return system instructions, which may be text or a list of parts, as text."""
    if isinstance(parts, str):
        return parts
    return "\n\n".join(filter(None, (as_text(part.get("content")) for part in as_objects(parts))))


def parse_tools(attributes: Object, definitions: Any) -> list[Any]:
    """Return the tools that the request offered to the model."""
    if isinstance(definitions, list):
        return [
            tool if "function" in tool else {"type": "function", "function": _to_function(tool)}
            for tool in as_objects(definitions)
        ]
    tools: list[Any] = []
    for item in unflatten(attributes, "llm.tools."):
        schema = as_object(item.get("tool")).get("json_schema")
        try:
            tools.append(msgspec.json.decode(schema) if isinstance(schema, str) else schema)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            tools.append({"type": "function", "function": {"name": str(schema)[:200]}})
    for function in unflatten(attributes, "llm.request.functions."):
        parameters = function.get("parameters")
        if isinstance(parameters, str):
            try:
                function["parameters"] = msgspec.json.decode(parameters)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                del function["parameters"]
        tools.append({"type": "function", "function": function})
    return tools


def _to_function(definition: Object) -> Object:
    """Return a provider's tool definition as a function. Anthropic calls parameters differently."""
    return {
        "parameters" if key == "input_schema" else key: value
        for key, value in definition.items()
        if key != "type"
    }


# --- flattened keys -------------------------------------------------------------------------------


def unflatten(attributes: Object, prefix: str) -> list[Object]:
    """Return nested objects from flattened keys: `prefix.0.a.b: 1` as `[{"a": {"b": 1}}]`."""
    items: dict[int, Object] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        index, _, path = key[len(prefix) :].partition(".")
        if not (index.isdecimal() and index.isascii() and len(index) <= 5 and path):
            continue
        if int(index) >= _INDEX_MAX:
            continue
        target = items.setdefault(int(index), {})
        *parents, last = path.split(".", 8)
        for name in parents:
            child = target.setdefault(name, {})
            target = child if isinstance(child, dict) else {}
        target[last] = value
    return [items[index] for index in sorted(items)]


def _indexed_objects(value: Any) -> list[Object]:
    """Return `{"0": a, "1": b}` as `[a, b]`."""
    items = as_object(value)
    indexes = sorted((key for key in items if key.isdecimal()), key=lambda key: (len(key), key))
    return [as_object(items[index]) for index in indexes]


def parse_flat_messages(attributes: Object, prefix: str) -> list[Object]:
    messages = []
    for item in unflatten(attributes, prefix):
        raw = as_object(item.get("message")) or item
        role = as_text(raw.get("role")) or ("assistant" if "completion" in prefix else "user")
        message: Object = {"role": role, "content": _flat_content(raw)}
        calls = [_flat_call(call) for call in _indexed_objects(raw.get("tool_calls"))]
        if calls:
            message["tool_calls"] = calls
        for key in ("tool_call_id", "name", "finish_reason"):
            if raw.get(key) is not None:
                message[key] = flat(raw[key])
        messages.append(message)
    return messages


def _flat_content(message: Object) -> Any:
    content = message.get("content")
    if content is not None:
        return content if isinstance(content, (str, list)) else flat(content)
    parts = []
    for item in _indexed_objects(message.get("contents")):
        part = as_object(item.get("message_content"))
        is_text = part.get("type", "text") == "text"
        parts.append({"type": "text", "text": as_text(part.get("text"))} if is_text else part)
    return _simplify_content(parts)


def _flat_call(item: Object) -> Object:
    call = as_object(item.get("tool_call")) or item
    function = as_object(call.get("function")) or call
    return _make_call(call.get("id"), function.get("name"), function.get("arguments"))


# --- events ---------------------------------------------------------------------------------------


class ChatMessages(msgspec.Struct):
    """Messages of one model call, collected from events."""

    input: list[Object] = msgspec.field(default_factory=list)
    output: list[Object] = msgspec.field(default_factory=list)

    def add_event(self, name: str, attributes: Object) -> bool:
        """Add the event's messages. Return False if the event has none."""
        if name in _ROLES:
            self.input += _parse_event_message(attributes, _ROLES[name])
        elif name == "gen_ai.choice":
            raw = decode_json_text(attributes.get("message"))
            if isinstance(raw, (str, list)):  # Strands writes the content only.
                raw = {"content": raw}
            message, *_ = _parse_event_message(as_object(raw) or attributes, "assistant")
            message["finish_reason"] = attributes.get("finish_reason")
            self.output.append(message)
        elif name == "gen_ai.content.prompt":
            self.input += _parse_event_content(attributes.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            self.output += _parse_event_content(attributes.get("gen_ai.completion"), "assistant")
        elif name == "gen_ai.client.inference.operation.details":
            self._add_details(attributes)
        else:
            return False
        return True

    def _add_details(self, attributes: Object) -> None:
        system = join_part_texts(decode_json_text(attributes.get("gen_ai.system_instructions")))
        if system:
            self.input.append({"role": "system", "content": system})
        for side, messages in (("input", self.input), ("output", self.output)):
            for raw in as_objects(decode_json_text(attributes.get(f"gen_ai.{side}.messages"))):
                messages.extend(parse_message(raw))


def _parse_event_message(raw: Object, role: str) -> list[Object]:
    """Return the message, or a message for each tool result if it has nothing else."""
    content = raw.get("content")
    calls: list[Object] = []
    results: list[Object] = []
    blocks = decode_json_text(content)
    if is_blocks(blocks):
        parts, calls, results = parse_blocks(blocks)
        content = _simplify_content(parts)
    message: Object = {"role": as_text(raw.get("role")) or role, "content": content}
    for call in as_objects(decode_json_text(raw.get("tool_calls"))):
        calls.append(call | as_object(call.get("function")))
    if calls:
        message["tool_calls"] = [
            _make_call(call.get("id"), call.get("name"), call.get("arguments")) for call in calls
        ]
    if message["role"] == "tool" and isinstance(raw.get("id"), str):
        message["tool_call_id"] = raw["id"]
    tools: list[Object] = [
        {"role": "tool"} | result | {"content": to_json_text(result["content"])}
        for result in results
    ]
    return tools if tools and content is None and not calls else [message, *tools]


def _parse_event_content(value: Any, role: str) -> list[Object]:
    value = decode_json_text(value)
    if isinstance(value, list):
        items = as_objects(value)
        return [message for item in items for message in parse_message({"role": role} | item)]
    return [{"role": role, "content": to_json_text(value)}] if value else []
