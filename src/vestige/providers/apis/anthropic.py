"""Anthropic messages.

Usage: Anthropic's `input_tokens` leaves out what was read from or written to the cache. Ours is
all input, as with every provider: the three numbers are added up.

Caching is never automatic: a prefix ends where `cache_control` says (or, on the request as a whole,
at the last message). The provider reads tools, then system, then messages, whatever the order of
the body.
"""

from __future__ import annotations

from typing import Any

from vestige.providers.chat_types import (
    Message,
    PromptPart,
    Request,
    Response,
    ToolCall,
    ToolResult,
    ToolSchema,
    Usage,
)
from vestige.providers.json_access import (
    as_dict,
    as_list,
    as_str,
    dicts,
    error_text,
    find_int,
    find_str,
    join_texts,
    json_size,
    json_text,
    quote,
    total,
)
from vestige.providers.json_offsets import UNKNOWN, Layout, find_breakpoints
from vestige.providers.message_parts import read_parts, read_result_content
from vestige.providers.tool_pairing import PROBLEMS_MAX, find_pairing_problems

PROVIDER = "anthropic"

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})

SETTINGS = ("tool_choice", "thinking")
"""A change of one of these makes cached messages useless, though not cached tools and system."""


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a Messages request; `data` is `body`, decoded."""
    layout = Layout(body)
    items = as_list(data.get("messages"))
    spans = layout.items("messages", len(items))
    talk = [_message(as_dict(item), *span) for item, span in zip(items, spans, strict=True)]
    tools = as_list(data.get("tools"))
    tool_spans = layout.items("tools", len(tools))
    system = []
    if data.get("system"):
        begin, end = layout.span("system")
        text = _text(data["system"])
        parts_of_system = read_parts(data["system"])
        system = [Message(role="system", text=text, parts=parts_of_system, begin=begin, end=end)]
    parts = [layout.part("tool", f"tools[{n}]", None, s, n) for n, s in enumerate(tool_spans)]
    parts += [layout.part("system", "system", "system", (m.begin, m.end)) for m in system]
    parts += [layout.part("setting", k, None, layout.span(k)) for k in SETTINGS if k in data]
    for n, (message, span) in enumerate(zip(talk, spans, strict=True)):
        parts.append(layout.part("message", f"messages[{n}]", message.role, span, n))
    prompt = [part for part in parts if part.end] if UNKNOWN not in spans else []
    breakpoints = _find_breakpoints(layout, prompt)
    return Request(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        messages=system + talk,
        tools=[_tool(as_dict(t), *span) for t, span in zip(tools, tool_spans, strict=True)],
        breakpoints=breakpoints,
        prefix_end=breakpoints[-1] if breakpoints else 0,
        max_output_tokens=find_int(data.get("max_tokens")),
        problems=_find_problems(items, talk)[:PROBLEMS_MAX],
        prompt=prompt,
    )


def _find_breakpoints(layout: Layout, prompt: list[PromptPart]) -> list[int]:
    breakpoints = find_breakpoints(layout.body, prompt)
    if layout.marked() and prompt and prompt[-1].end not in breakpoints:
        breakpoints.append(prompt[-1].end)
    return breakpoints


def _tool(tool: dict[str, Any], begin: int, end: int) -> ToolSchema:
    schema = tool.get("input_schema")
    return ToolSchema(
        name=find_str(tool.get("name")) or as_str(tool.get("type")),
        parameters=schema if isinstance(schema, dict) else None,
        size_bytes=(end - begin) or json_size(tool),
    )


def _text(content: object) -> str:
    """Return the text of a content: a string, or the text blocks of a list. Omits thinking."""
    if isinstance(content, str):
        return content
    return join_texts([as_str(block.get("text")) for block in dicts(content)])


def _calls(content: object) -> list[ToolCall]:
    return [
        ToolCall(
            id=find_str(block.get("id")),
            name=as_str(block.get("name")),
            arguments=json_text(block.get("input", {})),
        )
        for block in dicts(content)
        if block.get("type") == "tool_use"
    ]


def _message(item: dict[str, Any], begin: int, end: int) -> Message:
    content = item.get("content")
    results = [
        ToolResult(
            call_id=find_str(block.get("tool_use_id")),
            text=_text(block.get("content")),
            is_error=block.get("is_error") is True,
            parts=read_result_content(block.get("content"))[1],
        )
        for block in dicts(content)
        if block.get("type") == "tool_result"
    ]
    return Message(
        role=as_str(item.get("role")),
        text=_text(content),
        calls=_calls(content),
        results=results,
        parts=read_parts(content),
        begin=begin,
        end=end,
    )


def _find_problems(items: list[Any], talk: list[Message]) -> list[str]:
    problems = []
    if not items:
        problems.append("messages: there are none")
    elif talk[0].role != "user":
        problems.append(f"messages[0]: the first message is not the user's ({quote(talk[0].role)})")
    before = ""
    for n, (raw, message) in enumerate(zip(items, talk, strict=True)):
        path, item, last = f"messages[{n}]", as_dict(raw), n == len(items) - 1
        role = message.role
        if role not in ("user", "assistant"):
            problems.append(f"{path}: unknown role {quote(item.get('role'))}")
        if role == before == "assistant":
            problems.append(f"{path}: a second assistant message in a row is read as one with it")
        before = role
        problems += [f"{path}: {what}" for what in _find_own_problems(item, last)]
    turns = [(f"messages[{n}]", message) for n, message in enumerate(talk)]
    return problems + find_pairing_problems(turns, adjacent=True)


def _find_own_problems(item: dict[str, Any], last: bool) -> list[str]:
    """Find violations inside one message."""
    problems = []
    role, content = item.get("role"), item.get("content")
    final = last and role == "assistant"
    if content in (None, [], "") and not final:
        problems.append("the content is empty")
    blocks = dicts(content)
    for n, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text" and not as_str(block.get("text")).strip():
            problems.append(f"text block {n} is empty")
        if kind == "tool_use" and role != "assistant":
            problems.append(f"a tool call in a message of role {quote(role)}")
        if kind == "tool_use" and not isinstance(block.get("input"), dict):
            problems.append(
                f"the arguments of {quote(as_str(block.get('name')))} are not an object"
            )
        if kind == "tool_result" and role != "user":
            problems.append(f"a tool result in a message of role {quote(role)}")
    kinds = [block.get("type") for block in blocks]
    if "tool_result" in kinds and "text" in kinds[: kinds.index("tool_result")]:
        problems.append("text comes before the tool results")
    text = content if isinstance(content, str) else ""
    if blocks and kinds[-1] == "text":
        text = as_str(blocks[-1].get("text"))
    if final and text != text.rstrip():
        problems.append("the assistant's prefill ends with whitespace")
    return problems


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    error = error_text(data.get("error"))
    content = data.get("content")
    return Response(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        text=_text(content),
        calls=_calls(content),
        parts=read_parts(content),
        finish_reason="error" if error else _finish(data.get("stop_reason")),
        usage=_usage(as_dict(data.get("usage"))),
        error=error,
    )


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the events of a streamed answer."""
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    inputs: dict[int, list[str]] = {}
    thoughts: dict[int, list[str]] = {}
    for event in events:
        kind = event.get("type")
        number = event.get("index")
        index = number if isinstance(number, int) else 0
        delta = as_dict(event.get("delta"))
        if kind == "message_start":
            message = dict(as_dict(event.get("message")))
            usage = dict(as_dict(message.get("usage")))
        elif kind == "content_block_start":
            block = blocks[index] = dict(as_dict(event.get("content_block")))
            texts[index], inputs[index] = [as_str(block.get("text"))], []
            thoughts[index] = [as_str(block.get("thinking"))]
        elif kind == "content_block_delta":
            blocks.setdefault(index, {"type": "text"})
            texts.setdefault(index, []).append(as_str(delta.get("text")))
            inputs.setdefault(index, []).append(as_str(delta.get("partial_json")))
            thoughts.setdefault(index, []).append(as_str(delta.get("thinking")))
            if delta.get("type") == "signature_delta":
                blocks[index]["signature"] = delta.get("signature")
        elif kind == "message_delta":
            message["stop_reason"] = delta.get("stop_reason") or message.get("stop_reason")
            # These are running totals: the last value of each counts.
            usage |= {k: v for k, v in as_dict(event.get("usage")).items() if v is not None}
        elif kind == "error":
            message["error"] = event.get("error")
    for index, block in blocks.items():
        block["text"] = "".join(texts[index])
        thought = "".join(thoughts[index])
        if thought:
            block["thinking"] = thought
        text = "".join(inputs[index])
        if text and block.get("type") in CALL_BLOCKS:
            # Stays text, because the stream may have ended in the middle of it.
            block["input"] = text
    message["content"] = [block for _, block in sorted(blocks.items())]
    message["usage"] = usage
    return read_response(message)


def _finish(reason: object) -> str | None:
    return FINISH.get(reason, "other") if isinstance(reason, str) else None


def _usage(usage: dict[str, Any]) -> Usage:
    read = find_int(usage.get("cache_read_input_tokens"))
    written = find_int(usage.get("cache_creation_input_tokens"))
    fresh = find_int(usage.get("input_tokens"))
    return Usage(
        input_tokens=total(fresh, read, written) if fresh is not None else None,
        output_tokens=find_int(usage.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
