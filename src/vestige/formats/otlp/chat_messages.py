"""Messages of every convention as messages of a chat completions request.

    from_parts({"role": "user", "parts": [{"type": "text", "content": "hi"}]})      # gen_ai.input.messages
    from_keys(attributes, "llm.input_messages.")                                    # OpenInference
    from_keys(attributes, "gen_ai.prompt.")                                         # OpenLLMetry
    told.take("gen_ai.user.message", {"content": "hi"})                             # events

A part of a kind that is not known stays as it is, among the parts of the content.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.otlp.any_value import Object, decoded, object_of, objects_of, text_of
from vestige.record.coercion import flat

_PLACES_MAX: Final = 10_000
"""Messages, calls or documents that are counted up in keys."""
_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_FINISH: Final = {"tool_call": "tool_calls"}


def finish(reason: Any) -> Any:
    return _FINISH.get(reason, reason) if isinstance(reason, str) else None


def json_text(value: Any) -> str:
    """Arguments and results as text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return str(flat(value))


# --- parts ----------------------------------------------------------------------------------------


def from_parts(message: Object) -> list[Object]:
    """One message; a result of a tool is a message of its own."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [message] if message.get("role") else []
    role = text_of(message.get("role")) or "user"
    content: list[Any] = []
    calls: list[Object] = []
    results: list[Object] = []
    for part in objects_of(parts):
        match part.get("type"):
            case "text":
                content.append({"type": "text", "text": text_of(part.get("content"))})
            case "tool_call":
                calls.append(_call(part.get("id"), part.get("name"), part.get("arguments")))
            case "tool_call_response":
                result = part.get("response", part.get("result"))
                results.append(
                    {"role": "tool", "tool_call_id": part.get("id"), "content": json_text(result)}
                )
            case _:
                content.append(part)
    if results and not content and not calls:
        return results
    made: Object = {"role": role, "content": _content(content)}
    if calls:
        made["tool_calls"] = calls
    if message.get("finish_reason") is not None:
        made["finish_reason"] = message["finish_reason"]
    return [made, *results]


def _content(parts: list[Any]) -> Any:
    if not parts:
        return None
    if all(part.get("type") == "text" for part in parts):
        return parts[0]["text"] if len(parts) == 1 else parts
    return parts


def _call(id: Any, name: Any, arguments: Any) -> Object:
    return {
        "id": id if isinstance(id, str) else None,
        "type": "function",
        "function": {"name": text_of(name), "arguments": json_text(arguments)},
    }


def parts_text(parts: Any) -> str:
    """System instructions: text, or parts of which some have text."""
    if isinstance(parts, str):
        return parts
    return "\n\n".join(filter(None, (text_of(part.get("content")) for part in objects_of(parts))))


def tools_of(attributes: Object, definitions: Any) -> list[Any]:
    """The tools that were offered."""
    if isinstance(definitions, list):
        return [
            each if "function" in each else {"type": "function", "function": _function(each)}
            for each in objects_of(definitions)
        ]
    tools: list[Any] = []
    for each in unflattened(attributes, "llm.tools."):
        schema = object_of(each.get("tool")).get("json_schema")
        try:
            tools.append(msgspec.json.decode(schema) if isinstance(schema, str) else schema)
        except (msgspec.DecodeError, RecursionError):
            tools.append({"type": "function", "function": {"name": str(schema)[:200]}})
    for each in unflattened(attributes, "llm.request.functions."):
        parameters = each.get("parameters")
        if isinstance(parameters, str):
            try:
                each["parameters"] = msgspec.json.decode(parameters)
            except (msgspec.DecodeError, RecursionError):
                del each["parameters"]
        tools.append({"type": "function", "function": each})
    return tools


def _function(told: Object) -> Object:
    """A provider's own definition of a tool: only Anthropic has another name for its parameters."""
    return {
        "parameters" if key == "input_schema" else key: value
        for key, value in told.items()
        if key != "type"
    }


# --- keys that count up ---------------------------------------------------------------------------


def unflattened(attributes: Object, prefix: str) -> list[Object]:
    """`prefix.0.a.b: 1` as `[{"a": {"b": 1}}]`."""
    found: dict[int, Object] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        place, _, rest = key[len(prefix) :].partition(".")
        if not (place.isdecimal() and place.isascii() and len(place) <= 5 and rest):
            continue
        if int(place) >= _PLACES_MAX:
            continue
        into = found.setdefault(int(place), {})
        *way, last = rest.split(".", 8)
        for step in way:
            deeper = into.setdefault(step, {})
            into = deeper if isinstance(deeper, dict) else {}
        into[last] = value
    return [found[place] for place in sorted(found)]


def _in_order(held: Any) -> list[Object]:
    """`{"0": a, "1": b}` as `[a, b]`."""
    known = object_of(held)
    places = sorted((key for key in known if key.isdecimal()), key=lambda key: (len(key), key))
    return [object_of(known[place]) for place in places]


def from_keys(attributes: Object, prefix: str) -> list[Object]:
    made = []
    for each in unflattened(attributes, prefix):
        told = object_of(each.get("message")) or each
        role = text_of(told.get("role")) or ("assistant" if "completion" in prefix else "user")
        message: Object = {"role": role, "content": _keyed_content(told)}
        calls = [_keyed_call(call) for call in _in_order(told.get("tool_calls"))]
        if calls:
            message["tool_calls"] = calls
        for key in ("tool_call_id", "name", "finish_reason"):
            if told.get(key) is not None:
                message[key] = flat(told[key])
        made.append(message)
    return made


def _keyed_content(told: Object) -> Any:
    if told.get("content") is not None:
        return (
            told["content"] if isinstance(told["content"], (str, list)) else flat(told["content"])
        )
    parts = []
    for each in _in_order(told.get("contents")):
        part = object_of(each.get("message_content"))
        known = part.get("type", "text") == "text"
        parts.append({"type": "text", "text": text_of(part.get("text"))} if known else part)
    return _content(parts)


def _keyed_call(each: Object) -> Object:
    call = object_of(each.get("tool_call")) or each
    function = object_of(call.get("function")) or call
    return _call(call.get("id"), function.get("name"), function.get("arguments"))


# --- events ---------------------------------------------------------------------------------------


class ChatMessages(msgspec.Struct):
    """Messages that were told one by one."""

    asked: list[Object] = msgspec.field(default_factory=list)
    answered: list[Object] = msgspec.field(default_factory=list)

    def take(self, name: str, told: Object) -> bool:
        """False: this event is no message."""
        if name in _ROLES:
            self.asked.append(_told_message(told, _ROLES[name]))
        elif name == "gen_ai.choice":
            message = object_of(decoded(told.get("message"))) or told
            made = _told_message(message, "assistant")
            made["finish_reason"] = told.get("finish_reason")
            self.answered.append(made)
        elif name == "gen_ai.content.prompt":
            self.asked += _held(told.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            self.answered += _held(told.get("gen_ai.completion"), "assistant")
        elif name == "gen_ai.client.inference.operation.details":
            self._take_details(told)
        else:
            return False
        return True

    def _take_details(self, told: Object) -> None:
        system = parts_text(decoded(told.get("gen_ai.system_instructions")))
        if system:
            self.asked.append({"role": "system", "content": system})
        for key, into in (("input", self.asked), ("output", self.answered)):
            for message in objects_of(decoded(told.get(f"gen_ai.{key}.messages"))):
                into.extend(from_parts(message))


def _told_message(told: Object, role: str) -> Object:
    message: Object = {"role": text_of(told.get("role")) or role, "content": told.get("content")}
    calls = []
    for call in objects_of(decoded(told.get("tool_calls"))):
        function = object_of(call.get("function")) or call
        calls.append(_call(call.get("id"), function.get("name"), function.get("arguments")))
    if calls:
        message["tool_calls"] = calls
    if message["role"] == "tool" and isinstance(told.get("id"), str):
        message["tool_call_id"] = told["id"]
    return message


def _held(value: Any, role: str) -> list[Object]:
    value = decoded(value)
    if isinstance(value, list):
        return [made for each in objects_of(value) for made in from_parts({"role": role} | each)]
    return [{"role": role, "content": json_text(value)}] if value else []
