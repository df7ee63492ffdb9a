"""Messages of providers and frameworks as items.

Roles of frameworks are mapped to `system`, `user`, `assistant` and `tool`. Calls and results that
a framework writes as text become tool calls and tool results:

    tool-call       Calling tools:\n[{'id': 'call_1', ...}]            smolagents
    tool-response   Call id: call_1\nObservation:\n...                 smolagents
    user            Observation: ...                                   ReAct agents
    user            exitcode: 1 (execution failed)\nCode output: ...   AutoGen
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from vestige.providers.chat_types import Message, Request, Response, ToolCall
from vestige.query import formatting
from vestige.query.trajectory.code_blocks import parse_text_calls, split_code
from vestige.query.trajectory.types import ITEM_TEXT_MAX, Item, Kind, Side

LITERAL_MAX: Final = 256 * 1024
"""Characters of a text of calls that are parsed."""

_ROLES: Final = {
    "developer": "system",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "tool-call": "assistant",
    "tool_call": "assistant",
    "tool-response": "tool",
    "tool_response": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "environment": "tool",
}
_CALLS: Final = re.compile(r"(?:\A|\n)\s*Calling tools:\s*(\[.*\])\s*\Z", re.DOTALL)
_RESULT: Final = re.compile(
    r"\s*(?:Call id:[ \t]*(?P<id>[^\n]+)\n)?"
    r"(?P<label>Observation:|Error:|exitcode: (?P<exit>-?\d+) \([^)\n]*\)|Tool result:|"
    r"\[Tool result\]|Execution result:|Function result:)[ \t]*\n?",
)


def read_role(role: str) -> str:
    """Return `system`, `user`, `assistant` or `tool`; an unknown role is returned unchanged."""
    lowered = role.lower()
    return _ROLES.get(lowered, lowered)


def make_item(role: str, kind: Kind, text: str, span_id: str, side: Side, **facts: Any) -> Item:
    """Return an item with at most ITEM_TEXT_MAX characters of its text."""
    shown = text[:ITEM_TEXT_MAX]
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return Item(role, kind, shown, size, span_id, side, truncated=len(shown) < len(text), **facts)


# --- inputs ---------------------------------------------------------------------------------------


def message_items(message: Message, index: int, span_id: str) -> list[Item]:
    """Return the items of one message of a request."""
    facts: dict[str, Any] = {
        "message_index": index,
        "begin": message.begin,
        "end": message.end,
    }
    role = read_role(message.role)
    items: list[Item] = []
    if message.text:
        items += _text_items(role, message.text, span_id, facts)
    items += media_items(message, role, span_id, "input", facts)
    for call in message.calls:
        items.append(_call_item(call, span_id, "input", facts))
    for result in message.results:
        text = result.text
        media = " ".join(describe_part(part) for part in getattr(result, "parts", ()))
        items.append(
            make_item(
                "tool",
                "tool_result",
                "\n".join(filter(None, (text, media))),
                span_id,
                "input",
                call_id=result.call_id,
                is_error=result.is_error,
                **facts,
            )
        )
    if not items:
        items.append(make_item(role, "text", "", span_id, "input", **facts))
    return items


def _text_items(role: str, text: str, span_id: str, facts: dict[str, Any]) -> Iterator[Item]:
    if role in ("assistant", "user", "tool"):
        text, calls = _split_calls(text)
        if calls and text.strip():  # a client merges consecutive messages of one role
            yield make_item(role, "text", text, span_id, "input", **facts)
        for call in calls:
            yield _call_item(call, span_id, "input", facts)
        if calls:
            return
    found = _RESULT.match(text) if role in ("user", "tool") else None
    if found is not None or role == "tool":
        exit_code = found["exit"] if found is not None else None
        failed = found is not None and (found["label"] == "Error:" or exit_code not in (None, "0"))
        skipped = found is not None and found["label"] == "Observation:"
        yield make_item(
            "tool",
            "tool_result",
            text[found.end() :] if found is not None and skipped else text,
            span_id,
            "input",
            call_id=found["id"].strip() if found is not None and found["id"] else None,
            is_error=failed,
            **facts,
        )
        return
    yield make_item(role, "text", text, span_id, "input", **facts)


def _split_calls(text: str) -> tuple[str, list[ToolCall]]:
    """Return the text before `Calling tools:\\n[{'id': ...}]`, and the calls."""
    if len(text) > LITERAL_MAX or "Calling tools:" not in text:
        return text, []
    found = _CALLS.search(text)
    if found is None:
        return text, []
    try:
        values = ast.literal_eval(found[1])
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text, []
    calls = []
    for value in values if isinstance(values, list) else ():
        function = value.get("function", value) if isinstance(value, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            call_id = value.get("id")
            arguments = _json_text(function.get("arguments", ""))
            known_id = call_id if isinstance(call_id, str) else None
            calls.append(ToolCall(id=known_id, name=function["name"], arguments=arguments))
    return (text[: found.start()] if calls else text), calls


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return str(value)


# --- answers --------------------------------------------------------------------------------------


def answer_items(response: Response, span_id: str) -> list[Item]:
    """Return the items of an answer, in the order in which the model wrote them."""
    items: list[Item] = []
    parts = getattr(response, "parts", ())
    if parts:
        for part in parts:
            if part.kind == "text":
                items += written_items(part.text, span_id, "output")
            elif part.kind not in ("tool_call", "tool_result"):
                items.append(_part_item(part, "assistant", span_id, "output", {}))
    elif response.text:
        items += written_items(response.text, span_id, "output")
    items += [_call_item(call, span_id, "output", {}) for call in response.calls]
    return items


def written_items(text: str, span_id: str, side: Side) -> list[Item]:
    """Return text that a model wrote as thoughts, code, and tool calls written as text."""
    items = []
    calls = parse_text_calls(text)
    if calls:
        items.append(make_item("assistant", "text", text, span_id, side))
        for call in calls:
            item = make_item("assistant", "tool_call", call.arguments, span_id, side)
            item.name = call.name
            items.append(item)
        return items
    for kind, language, part in split_code(text):
        item = make_item("assistant", "code" if kind == "code" else "text", part, span_id, side)
        item.name = language or None
        items.append(item)
    return items


def _call_item(call: ToolCall, span_id: str, side: Side, facts: dict[str, Any]) -> Item:
    return make_item(
        "assistant",
        "tool_call",
        call.arguments,
        span_id,
        side,
        name=call.name,
        call_id=call.id,
        **facts,
    )


# --- media ----------------------------------------------------------------------------------------


def media_items(
    message: Message, role: str, span_id: str, side: Side, facts: dict[str, Any]
) -> list[Item]:
    """Return the parts of a message that are not text, each with a description."""
    return [
        _part_item(part, role, span_id, side, facts)
        for part in getattr(message, "parts", ())
        if part.kind not in ("text", "tool_call", "tool_result")
    ]


def _part_item(part: Any, role: str, span_id: str, side: Side, facts: dict[str, Any]) -> Item:
    if part.kind == "thinking" and part.text:
        return make_item(role, "thinking", part.text, span_id, side, **facts)
    kind: Kind = part.kind if part.kind in ("thinking", "image", "audio", "file") else "other"
    item = make_item(role, kind, describe_part(part), span_id, side, **facts)
    item.name = part.name
    if part.size_bytes:
        item.size_bytes = part.size_bytes
    return item


def describe_part(part: Any) -> str:
    """Describe a part that is not text: `[image 160x100 png, 61 kB]`."""
    if part.kind == "thinking":
        if part.text:
            return f"[thinking, {formatting.pluralize(len(part.text.split()), 'word')}]"
        return "[thinking, encrypted]"
    words = [part.kind if part.kind != "other" else part.type or "part"]
    if part.width and part.height:
        words.append(f"{part.width}x{part.height}")
    if part.mime_type:
        words.append(part.mime_type.rpartition("/")[2])
    facts = [" ".join(words)]
    if part.name:
        facts.append(part.name)
    if part.size_bytes:
        facts.append(format_bytes(part.size_bytes))
    if part.url:
        facts.append(formatting.single_line(part.url, 120))
    text = formatting.single_line(part.text, 200) if part.text else ""
    return f"[{', '.join(facts)}]" + (f" {text}" if text else "")


def format_bytes(count: int) -> str:
    """Format as `61 kB`."""
    if count < 1000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1000:.0f} kB"
    return f"{count / 1e6:.1f} MB"


# --- bodies of unknown formats --------------------------------------------------------------------


def request_of_text(text: str) -> Request | None:
    """Parse an input that is a bare list of messages, as some frameworks record it."""
    from vestige.providers.parsing import parse_request

    if not text.lstrip().startswith("["):
        return None
    return parse_request('{"messages":' + text + "}")


def response_of_text(text: str) -> Response | None:
    """Parse an output that is a bare message, or a list of one."""
    from vestige.providers.parsing import parse_response

    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1].strip()
    if not stripped.startswith("{") or '"role"' not in stripped[:20_000]:
        return None
    return parse_response('{"choices":[{"message":' + stripped + "}]}")
