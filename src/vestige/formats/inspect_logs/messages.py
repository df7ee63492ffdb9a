"""Messages and usage of Inspect in the shapes that queries parse.

A text `attachment://HASH` is looked up in the sample's attachments. A model event has its input,
or references into the sample's pool of messages.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.openai_bodies import Call, to_tool_calls
from vestige.formats.record_builder import encode_json
from vestige.record.coercion import clean_name

Object = dict[str, Any]

_ATTACHMENT: Final = "attachment://"
_DEPTH_MAX: Final = 50


class SampleContent:
    """Looks up attachments and pooled messages of one sample."""

    def __init__(self, sample: Object) -> None:
        self._attachments = as_object(sample.get("attachments"))
        pool = as_object(sample.get("events_data")).get("messages")
        self._pool = pool if isinstance(pool, list) else []

    def resolve(self, value: Any, depth: int = 0) -> Any:
        """Return a value with its attachments."""
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            found = self._attachments.get(value.removeprefix(_ATTACHMENT))
            return found if isinstance(found, str) else value
        if depth >= _DEPTH_MAX:
            return value
        if isinstance(value, dict):
            return {key: self.resolve(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [self.resolve(each, depth + 1) for each in value]
        return value

    def input_of(self, event: Object) -> list[Object]:
        """Return the messages that a model event sent."""
        messages = as_objects(event.get("input"))
        references = event.get("input_refs")
        for reference in references if isinstance(references, list) else ():
            if isinstance(reference, list) and len(reference) == 2:
                begin, end = reference
                if type(begin) is int and type(end) is int and 0 <= begin <= end:
                    messages += as_objects(self._pool[begin:end])
        return messages

    def to_openai(self, message: Object) -> Object:
        """Return a message in OpenAI's shape."""
        message = self.resolve(message)
        role = message.get("role")
        converted: Object = {
            "role": role if isinstance(role, str) else "user",
            "content": to_openai_content(message.get("content")),
        }
        thinking = get_thinking(message)
        if thinking:
            converted["reasoning_content"] = thinking
        calls = get_calls(message)
        if calls:
            converted["tool_calls"] = to_tool_calls(calls)
        if role == "tool":
            converted["tool_call_id"] = message.get("tool_call_id")
            error = as_object(message.get("error")).get("message")
            if isinstance(error, str) and not converted["content"]:
                converted["content"] = error
        return converted


def to_openai_content(content: Any) -> Any:
    """Return a content as text, or as parts if it has images."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts: list[Object] = []
    for part in as_objects(content):
        if isinstance(part.get("text"), str) and part.get("type", "text") == "text":
            parts.append({"type": "text", "text": part["text"]})
        elif isinstance(part.get("image"), str):
            parts.append({"type": "image_url", "image_url": {"url": part["image"]}})
        elif part.get("type") not in ("reasoning", "tool_use"):
            parts.append({"type": "text", "text": encode_json(part)})
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def content_text(content: Any) -> str:
    """Return the text of a content, a result, or a sample's input."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = []
        for part in content:
            inner = part.get("text", part.get("content")) if isinstance(part, dict) else part
            texts.append(inner if isinstance(inner, str) else content_text(inner))
        return "\n".join(filter(None, texts))
    return "" if content is None else encode_json(content)


def get_thinking(message: Object) -> str:
    parts = as_objects(message.get("content"))
    texts = [part.get("reasoning") for part in parts if part.get("type") == "reasoning"]
    return "\n".join(text for text in texts if isinstance(text, str))


def get_calls(message: Object) -> list[Call]:
    found = []
    for call in as_objects(message.get("tool_calls")):
        name, call_id = call.get("function"), call.get("id")
        arguments = call.get("arguments")
        found.append(
            Call(
                call_id if isinstance(call_id, str) and call_id else None,
                clean_name(name) if isinstance(name, str) and name else "tool",
                arguments if isinstance(arguments, str) else encode_json(arguments or {}),
            )
        )
    return found


def usage_attributes(usage: Object) -> Object:
    """Return token counts. Inspect's input leaves out cached tokens; ours includes them."""
    counts = {key: value for key, value in usage.items() if type(value) is int and value >= 0}
    read = counts.get("input_tokens_cache_read")
    written = counts.get("input_tokens_cache_write")
    found: Object = {
        "input_tokens": counts.get("input_tokens"),
        "output_tokens": counts.get("output_tokens"),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }
    if found["input_tokens"] is not None:
        found["input_tokens"] += (read or 0) + (written or 0)
    cost = usage.get("total_cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost >= 0:
        found["cost_usd"] = cost
    return {key: value for key, value in found.items() if value is not None}


def as_object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
