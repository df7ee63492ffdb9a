"""The OpenAI Responses API: `input` is a string or a list of items.

The provider may store the history (`previous_response_id`, `conversation`). A result may then
answer a call that is not in this request, so pairing is not checked.

Usage: `input_tokens` includes cached tokens, `output_tokens` includes reasoning.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.providers.apis.openai import ROLES, content_text, read_tool
from vestige.providers.chat_types import (
    Message,
    MessagePart,
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
    is_json,
    join_texts,
    json_text,
    quote,
)
from vestige.providers.json_offsets import UNKNOWN, Layout
from vestige.providers.message_parts import read_part, read_parts, read_result_content
from vestige.providers.tool_pairing import PROBLEMS_MAX, find_pairing_problems

PROVIDER = "openai-responses"

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
REASONING_DELTAS = frozenset(
    {"response.reasoning_summary_text.delta", "response.reasoning_text.delta"}
)
REFERENCES = ("previous_response_id", "conversation", "prompt")


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a Responses request; `data` is `body`, decoded."""
    layout = Layout(body)
    content = data.get("input")
    is_single = isinstance(content, str)
    items = [content] if is_single else as_list(content)
    spans = [layout.span("input")] if is_single else layout.items("input", len(items))
    paths = ["input"] if is_single else [f"input[{n}]" for n in range(len(items))]
    talk = [_message(item, *span) for item, span in zip(items, spans, strict=True)]
    tools = as_list(data.get("tools"))
    tool_spans = layout.items("tools", len(tools))
    parts = [layout.part("tool", f"tools[{n}]", None, s, n) for n, s in enumerate(tool_spans)]
    if isinstance(data.get("text"), dict):
        parts.append(layout.part("setting", "text", None, layout.span("text")))
    system = []
    if isinstance(data.get("instructions"), str):
        begin, end = layout.span("instructions")
        text = data["instructions"]
        system = [Message(role="system", text=text, parts=read_parts(text), begin=begin, end=end)]
        parts.append(layout.part("system", "instructions", "system", (begin, end)))
    for n, (path, message, span) in enumerate(zip(paths, talk, spans, strict=True)):
        parts.append(layout.part("message", path, message.role, span, n))
    return Request(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        messages=system + talk,
        tools=[
            schema
            for tool, span in zip(tools, tool_spans, strict=True)
            for schema in _read_tools(tool, span)
        ],
        breakpoints=[],
        prefix_end=spans[-1][1] if spans else 0,
        max_output_tokens=find_int(data.get("max_output_tokens")),
        problems=_find_problems(data, items, paths, talk)[:PROBLEMS_MAX],
        prompt=[part for part in parts if part.end] if UNKNOWN not in spans else [],
    )


def _read_tools(item: object, span: tuple[int, int]) -> list[ToolSchema]:
    """Parse a tool, or the tools of a namespace."""
    tool = as_dict(item)
    if tool.get("type") == "namespace":
        return [read_tool(each, UNKNOWN) for each in dicts(tool.get("tools"))]
    return [read_tool(item, span)]


def _message(item: object, begin: int, end: int) -> Message:
    if isinstance(item, str):
        return Message(role="user", text=item, parts=read_parts(item), begin=begin, end=end)
    data = as_dict(item)
    parts = _read_item(data)
    kind = as_str(data.get("type"))
    role = as_str(data.get("role"))
    call = _call(data)
    if call:
        return Message(role="assistant", text="", calls=[call], parts=parts, begin=begin, end=end)
    if kind in RESULTS:
        output = data.get("output")
        text = content_text(output) if isinstance(output, str | list) else json_text(output)
        media = read_result_content(output)[1]
        result = ToolResult(call_id=find_str(data.get("call_id")), text=text, parts=media)
        return Message(role="tool", text="", results=[result], parts=parts, begin=begin, end=end)
    text = content_text(data.get("content"))
    if kind == "reasoning":
        role, text = "assistant", join_texts([content_text(data.get("summary")), text])
    elif not role and kind.endswith("_call"):  # hosted tools: web_search_call, file_search_call
        role = "assistant"
    elif not role and kind.endswith("_call_output"):  # computer_call_output, shell_call_output
        role = "tool"
    return Message(role=ROLES.get(role, role), text=text, parts=parts, begin=begin, end=end)


def _read_item(item: dict[str, Any]) -> list[MessagePart]:
    """Return the parts of one item: the content of a message, or any other item itself."""
    if item.get("type") in (None, "", "message"):
        return read_parts(item.get("content"))
    return [read_part(item)] if item.get("type") != "item_reference" else []


def _call(item: dict[str, Any]) -> ToolCall | None:
    field = CALLS.get(as_str(item.get("type")))
    if field is None:
        return None
    return ToolCall(
        id=find_str(item.get("call_id")),
        name=as_str(item.get("name")),
        arguments=json_text(item.get(field, "")),
    )


def _find_problems(
    data: dict[str, Any], items: list[Any], paths: list[str], talk: list[Message]
) -> list[str]:
    problems = []
    remote = any(data.get(key) for key in REFERENCES)
    if not items and not remote:
        problems.append("input: there is none")
    for path, content in zip(paths, items, strict=True):
        if content == "":
            problems.append(f"{path}: the content is empty")
        item = as_dict(content)
        kind, role = as_str(item.get("type")), item.get("role")
        if "role" in item or kind == "message":
            if role not in ("user", "assistant", "system", "developer"):
                problems.append(f"{path}: unknown role {quote(role)}")
            if item.get("content") in (None, [], ""):
                problems.append(f"{path}: the content is empty")
        if kind == "function_call" and not is_json(as_str(item.get("arguments"))):
            problems.append(
                f"{path}: the arguments of {quote(as_str(item.get('name')))} are not JSON"
            )
        if kind in RESULTS and item.get("output") is None:
            problems.append(f"{path}: the tool result has no output")
    if not remote:
        turns = list(zip(paths, talk, strict=True))
        problems += find_pairing_problems(turns, adjacent=False)
    return problems


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    output = dicts(data.get("output"))
    calls = [call for call in map(_call, output) if call]
    texts = [content_text(item.get("content")) for item in output if item.get("type") == "message"]
    error = error_text(data.get("error"))
    return Response(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        text=join_texts(texts),
        calls=calls,
        parts=[part for item in output for part in _read_item(item)],
        finish_reason=_finish(data, calls, error),
        usage=_usage(data.get("usage")),
        error=error,
    )


def read_stream(events: list[dict[str, Any]]) -> Response:
    """The events of a streamed answer: the last one repeats it whole; if cut, what came so far."""
    items: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    arguments: dict[int, list[str]] = {}
    thoughts: dict[int, list[str]] = {}
    last: dict[str, Any] = {}
    error: str | None = None
    for event in events:
        kind = as_str(event.get("type"))
        number = event.get("output_index")
        index = number if isinstance(number, int) else 0
        last = as_dict(event.get("response")) or last
        if kind in ("response.output_item.added", "response.output_item.done"):
            items[index] = dict(as_dict(event.get("item")))
            arguments.pop(index, None)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            texts.setdefault(index, []).append(as_str(event.get("delta")))
        elif kind in REASONING_DELTAS:
            thoughts.setdefault(index, []).append(as_str(event.get("delta")))
        elif kind == "response.function_call_arguments.delta":
            item = items.setdefault(index, {"type": "function_call"})
            pieces = arguments.setdefault(index, [as_str(item.get("arguments"))])
            pieces.append(as_str(event.get("delta")))
        elif kind == "error" or "error" in event:
            error = error_text(event.get("error")) or error_text({**event, "type": None})
    if as_list(last.get("output")):
        response = read_response(last)
    else:
        for index, pieces in arguments.items():
            items[index]["arguments"] = "".join(pieces)
        for index, pieces in thoughts.items():
            item = items.setdefault(index, {"type": "reasoning"})
            if not item.get("summary") and not item.get("content"):
                item["summary"] = [{"type": "summary_text", "text": "".join(pieces)}]
        for index, pieces in texts.items():
            item = items.setdefault(index, {"type": "message"})
            if not item.get("content"):
                item["content"] = "".join(pieces)
        response = read_response({**last, "output": [item for _, item in sorted(items.items())]})
    if error is None:
        return response
    return msgspec.structs.replace(response, finish_reason="error", error=error)


def _finish(data: dict[str, Any], calls: list[ToolCall], error: str | None) -> str | None:
    status = data.get("status")
    if error or status == "failed":
        return "error"
    if status == "completed":
        return "tool_calls" if calls else "stop"
    if status == "incomplete":
        reason = as_dict(data.get("incomplete_details")).get("reason")
        if reason == "max_output_tokens":
            return "length"
        return "content_filter" if reason == "content_filter" else "other"
    return "other" if status == "cancelled" else None  # in progress: it has not finished


def _usage(value: object) -> Usage:
    usage = as_dict(value)
    details = as_dict(usage.get("input_tokens_details"))
    return Usage(
        input_tokens=find_int(usage.get("input_tokens")),
        output_tokens=find_int(usage.get("output_tokens")),
        cache_read_tokens=find_int(details.get("cached_tokens")),
        cache_write_tokens=find_int(details.get("cache_write_tokens")),
    )
