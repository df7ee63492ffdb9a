"""Convert values of frameworks to plain ones: messages, models, results of tools."""

from __future__ import annotations

from typing import Any

from vestige.limits import BODY_NODES_MAX, NESTING_MAX

_MESSAGE_FIELDS = ("role", "type", "name", "content", "tool_calls", "tool_call_id", "status")


def to_plain(value: Any) -> Any:
    """Return a value that JSON can represent, with the fields of models and messages."""
    return _convert(value, NESTING_MAX, [BODY_NODES_MAX])


def _convert(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth == 0 or left[0] < 0 or isinstance(value, (str, int, float, bytes, type(None))):
        return value
    if isinstance(value, dict):
        return {key: _convert(item, depth - 1, left) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(item, depth - 1, left) for item in value]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "content") and (hasattr(value, "role") or hasattr(value, "tool_call_id")):
        return _message(value, depth, left)
    if hasattr(value, "content") and hasattr(value, "response_metadata"):
        return _message(value, depth, left)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_none=True)
    return value


def _message(value: Any, depth: int, left: list[int]) -> dict[str, Any]:
    fields = {name: getattr(value, name, None) for name in _MESSAGE_FIELDS}
    return {
        name: _convert(item, depth - 1, left)
        for name, item in fields.items()
        if item is not None and item != [] and item != ""
    }


def find_text(value: Any) -> Any:
    """Return the text of a conversation's last message, or the value as plain data."""
    messages = value.get("messages") if isinstance(value, dict) else value
    if isinstance(messages, (list, tuple)) and messages:
        last = messages[-1]
        if isinstance(last, dict):
            content = last.get("content")
        elif isinstance(last, tuple) and len(last) == 2:
            content = last[1]
        else:
            content = getattr(last, "content", None)
        if isinstance(content, str) and content:
            return content
    return to_plain(value)
