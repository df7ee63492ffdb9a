"""The OpenAI Responses API: `input` is a string or a list of items, `instructions` the system prompt.

A history may live at the provider (`previous_response_id`, `conversation`): then a result may
answer a call that this request does not show, and pairing is not checked.

Usage: `input_tokens` includes cached tokens, `output_tokens` includes reasoning.
"""

from __future__ import annotations

from typing import Any

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
from vestige.providers.models import Message, Request, Response, ToolCall, ToolResult, Usage
from vestige.providers.openai import ROLES, content_text, read_tool
from vestige.providers.tool_pairing import PROBLEMS_MAX, find_pairing_problems

PROVIDER = "openai-responses"

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
REFERENCES = ("previous_response_id", "conversation", "prompt")


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """A Responses request; `data` is `body`, decoded."""
    layout = Layout(body)
    given = data.get("input")
    whole = isinstance(given, str)
    items = [given] if whole else as_list(given)
    spans = [layout.span("input")] if whole else layout.items("input", len(items))
    paths = ["input"] if whole else [f"input[{n}]" for n in range(len(items))]
    talk = [_message(item, *span) for item, span in zip(items, spans, strict=True)]
    tools = as_list(data.get("tools"))
    tool_spans = layout.items("tools", len(tools))
    parts = [layout.part("tool", f"tools[{n}]", None, s, n) for n, s in enumerate(tool_spans)]
    if isinstance(data.get("text"), dict):
        parts.append(layout.part("setting", "text", None, layout.span("text")))
    system = []
    if isinstance(data.get("instructions"), str):
        begin, end = layout.span("instructions")
        system = [Message(role="system", text=data["instructions"], begin=begin, end=end)]
        parts.append(layout.part("system", "instructions", "system", (begin, end)))
    for n, (path, message, span) in enumerate(zip(paths, talk, spans, strict=True)):
        parts.append(layout.part("message", path, message.role, span, n))
    return Request(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        messages=system + talk,
        tools=[read_tool(tool, span) for tool, span in zip(tools, tool_spans, strict=True)],
        breakpoints=[],
        prefix_end=spans[-1][1] if spans else 0,
        max_output_tokens=find_int(data.get("max_output_tokens")),
        problems=_find_problems(data, items, paths, talk)[:PROBLEMS_MAX],
        prompt=[part for part in parts if part.end] if UNKNOWN not in spans else [],
    )


def _message(item: object, begin: int, end: int) -> Message:
    if isinstance(item, str):
        return Message(role="user", text=item, begin=begin, end=end)
    data = as_dict(item)
    kind = as_str(data.get("type"))
    role = as_str(data.get("role"))
    call = _call(data)
    if call:
        return Message(role="assistant", text="", calls=[call], begin=begin, end=end)
    if kind in RESULTS:
        output = data.get("output")
        text = content_text(output) if isinstance(output, str | list) else json_text(output)
        result = ToolResult(call_id=find_str(data.get("call_id")), text=text)
        return Message(role="tool", text="", results=[result], begin=begin, end=end)
    text = content_text(data.get("content"))
    if kind == "reasoning":
        role, text = "assistant", join_texts([content_text(data.get("summary")), text])
    elif not role and kind.endswith(
        "_call"
    ):  # web_search_call, file_search_call, ...: hosted tools
        role = "assistant"
    return Message(role=ROLES.get(role, role), text=text, begin=begin, end=end)


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
    for path, given in zip(paths, items, strict=True):
        if given == "":
            problems.append(f"{path}: the content is empty")
        item = as_dict(given)
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
    """A whole answer, or an error body."""
    output = dicts(data.get("output"))
    calls = [call for call in map(_call, output) if call]
    texts = [content_text(item.get("content")) for item in output if item.get("type") == "message"]
    error = error_text(data.get("error"))
    return Response(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        text=join_texts(texts),
        calls=calls,
        finish_reason=_finish(data, calls, error),
        usage=_usage(data.get("usage")),
        error=error,
    )


def read_stream(events: list[dict[str, Any]]) -> Response:
    """The events of a streamed answer: the last one repeats it whole; if cut, what came so far."""
    items: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    arguments: dict[int, list[str]] = {}
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
        elif kind == "response.function_call_arguments.delta":
            item = items.setdefault(index, {"type": "function_call"})
            given = arguments.setdefault(index, [as_str(item.get("arguments"))])
            given.append(as_str(event.get("delta")))
        elif kind == "error" or "error" in event:
            error = error_text(event.get("error")) or error_text({**event, "type": None})
    if as_list(last.get("output")):
        response = read_response(last)
    else:
        for index, pieces in arguments.items():
            items[index]["arguments"] = "".join(pieces)
        for index, pieces in texts.items():
            item = items.setdefault(index, {"type": "message"})
            if not item.get("content"):
                item["content"] = "".join(pieces)
        response = read_response({**last, "output": [item for _, item in sorted(items.items())]})
    if error is None:
        return response
    return Response(
        provider=PROVIDER,
        model=response.model,
        text=response.text,
        calls=response.calls,
        finish_reason="error",
        usage=response.usage,
        error=error,
    )


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
