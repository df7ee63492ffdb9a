"""A body as text: messages with their roles, strings without escapes.

render_body_text(b'{"messages": [{"role": "user", "content": "a\\nb"}]}', "input", None)
# user:
# a
# b
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from vestige.providers.parsing import parse_request, parse_response
from vestige.query.trajectory.message_items import answer_items, message_items
from vestige.query.trajectory.types import Item

TEXT_MAX = 8 * 1024 * 1024
"""Bytes of a body that are rendered; a longer one is shown as it is."""


def render_body_text(body: bytes, which: str, provider: str | None) -> str:
    """Return the messages of a request or response as text; of other JSON its values."""
    text = body.decode(errors="replace")
    if len(body) > TEXT_MAX:
        return text
    items: list[Item] = []
    if which == "input":
        request = parse_request(text, provider)
        for index, message in enumerate(request.messages if request is not None else ()):
            items += message_items(message, index, "")
    else:
        response = parse_response(text, provider)
        items = [] if response is None else answer_items(response, "")
    if items:
        return "\n\n".join(_render_item(item) for item in items)
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_render_value(value, 0))


def _render_item(item: Item) -> str:
    if item.kind == "tool_call":
        return f"{item.role} calls {item.name}:\n{_render_json(item.text)}"
    label = item.role if item.kind in ("text", "tool_result") else f"{item.role}, {item.kind}"
    call = f" ({item.call_id})" if item.call_id else ""
    return f"{label}{call}:\n{item.text}"


def _render_json(text: str) -> str:
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_render_value(value, 0))


def _render_value(value: Any, depth: int) -> Iterable[str]:
    """Yield the lines of a JSON value; strings with line breaks are blocks."""
    indent = "  " * depth
    if depth > 50 or not isinstance(value, (dict, list)):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield from (f"{indent}{line}" for line in text.splitlines() or [""])
        return
    pairs = (
        value.items() if isinstance(value, dict) else ((f"[{i}]", v) for i, v in enumerate(value))
    )
    for key, each in pairs:
        lines = list(_render_value(each, depth + 1))
        if len(lines) == 1 and not isinstance(each, (dict, list)):
            yield f"{indent}{key}: {lines[0].strip()}"
        else:
            yield f"{indent}{key}:"
            yield from lines
