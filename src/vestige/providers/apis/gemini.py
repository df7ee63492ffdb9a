"""Google Gemini: `contents` of `parts`.

Usage: `promptTokenCount` includes cached tokens; tokens of tool results of the provider's own tools
are added to input, and those of thoughts to output, because they are billed so.

The model is in the URL, seldom in the body. Calls and results have an id only lately; a result
without one names its tool, and its `call_id` is that name. The JSON may be in camel case (SDKs) or
snake case (hand-written).
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.re_compat import re
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
    join_texts,
    json_size,
    json_text,
    quote,
    total,
)
from vestige.providers.json_offsets import UNKNOWN, Layout
from vestige.providers.message_parts import join_parts, read_parts, thinking_part
from vestige.providers.tool_pairing import PROBLEMS_MAX, find_turn_problems

PROVIDER = "gemini"

ROLES = {"user": "user", "model": "assistant", "function": "tool", "system": "system"}

FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "MALFORMED_FUNCTION_CALL": "error",
    "UNEXPECTED_TOOL_CALL": "error",
}

_SIGNATURES = ("thoughtSignature", "thought_signature")

_CAPITAL = re.compile(r"[A-Z]")


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a generateContent request; `data` is `body`, decoded."""
    layout = Layout(body)
    content = data.get("contents")
    is_single = not isinstance(content, list)
    items = [content] if is_single else as_list(content)
    spans = [layout.span("contents")] if is_single else layout.items("contents", len(items))
    paths = ["contents"] if is_single else [f"contents[{n}]" for n in range(len(items))]
    talk = [_message(item, *span) for item, span in zip(items, spans, strict=True)]
    tools = as_list(data.get("tools"))
    tool_spans = layout.items("tools", len(tools))
    parts = [layout.part("tool", f"tools[{n}]", None, s, n) for n, s in enumerate(tool_spans)]
    key = "systemInstruction" if "systemInstruction" in data else "system_instruction"
    system = []
    if data.get(key):
        begin, end = layout.span(key)
        text = data[key] if isinstance(data[key], str) else _text(_parts(data[key]))
        system = [Message(role="system", text=text, parts=read_parts(text), begin=begin, end=end)]
        # It is read first, before the tools.
        parts.insert(0, layout.part("system", key, "system", (begin, end)))
    for n, (path, message, span) in enumerate(zip(paths, talk, spans, strict=True)):
        parts.append(layout.part("message", path, message.role, span, n))
    config = as_dict(_get(data, "generationConfig"))
    return Request(
        provider=PROVIDER,
        model=find_model(data.get("model")),
        messages=system + talk,
        tools=[schema for tool in dicts(tools) for schema in _tools(tool)],
        breakpoints=[],
        prefix_end=spans[-1][1] if spans else 0,
        max_output_tokens=find_int(_get(config, "maxOutputTokens")),
        problems=_find_problems(items, paths, talk)[:PROBLEMS_MAX],
        prompt=[part for part in parts if part.end] if UNKNOWN not in spans else [],
    )


def find_model(value: object) -> str | None:
    """Return the name of a model without its path: `models/gemini-2.5-pro`."""
    name = find_str(value)
    return name.rsplit("/", 1)[-1] if name else None


def _get(data: dict[str, Any], name: str) -> Any:
    """Return a field by its name in camel case, or in snake case."""
    if name in data:
        return data[name]
    return data.get(_CAPITAL.sub(lambda m: "_" + m.group().lower(), name))


def _parts(content: object) -> list[dict[str, Any]]:
    content = as_dict(content).get("parts")
    return [content] if isinstance(content, dict) else dicts(content)


def _text(parts: list[dict[str, Any]]) -> str:
    return join_texts([as_str(p.get("text")) for p in parts if p.get("thought") is not True])


def _calls(parts: list[dict[str, Any]]) -> list[ToolCall]:
    calls = []
    for part in parts:
        call = _get(part, "functionCall")
        if isinstance(call, dict):
            arguments = json_text(call.get("args") or {})
            name = as_str(call.get("name"))
            calls.append(ToolCall(id=find_str(call.get("id")), name=name, arguments=arguments))
    return calls


def _message(item: object, begin: int, end: int) -> Message:
    if isinstance(item, str):
        return Message(role="user", text=item, parts=read_parts(item), begin=begin, end=end)
    parts = _parts(item)
    results = []
    for part in parts:
        result = _get(part, "functionResponse")
        if isinstance(result, dict):
            output = result.get("response")
            call_id = find_str(result.get("id")) or find_str(result.get("name"))
            # The convention of Google's documentation: `error` instead of `output`.
            failed = isinstance(output, dict) and "error" in output and "output" not in output
            media = read_parts(result.get("parts"))
            results.append(
                ToolResult(call_id=call_id, text=json_text(output), is_error=failed, parts=media)
            )
    role = as_str(as_dict(item).get("role")) or "user"
    role = ROLES.get(role, role)
    return Message(
        role="tool" if results and role == "user" else role,
        text=_text(parts),
        calls=_calls(parts),
        results=results,
        parts=_read_parts(parts),
        begin=begin,
        end=end,
    )


def _read_parts(parts: list[dict[str, Any]]) -> list[MessagePart]:
    """The parts, and the encrypted thinking that an otherwise empty part contains."""
    found = []
    for part in parts:
        signature = as_str(_get(part, "thoughtSignature"))
        if signature and set(part) <= {"thoughtSignature", "thought_signature", "text"}:
            text = as_str(part.get("text"))
            if not text:
                found.append(thinking_part("", "thoughtSignature", signature))
                continue
        found += read_parts({k: v for k, v in part.items() if k not in _SIGNATURES})
    return found


def _tools(tool: dict[str, Any]) -> list[ToolSchema]:
    """A tool is a list of functions, or one of the provider's own (`googleSearch`)."""
    functions = dicts(_get(tool, "functionDeclarations"))
    if not functions:
        size = json_size(tool)
        return [ToolSchema(name=name, parameters=None, size_bytes=size) for name in tool]
    schemas = []
    for function in functions:
        parameters = _get(function, "parametersJsonSchema") or function.get("parameters")
        schemas.append(
            ToolSchema(
                name=as_str(function.get("name")),
                parameters=parameters if isinstance(parameters, dict) else None,
                size_bytes=json_size(function),
            )
        )
    return schemas


def _find_problems(items: list[Any], paths: list[str], talk: list[Message]) -> list[str]:
    problems = []
    if not items:
        problems.append("contents: there are none")
    for path, item, message in zip(paths, items, talk, strict=True):
        role = as_dict(item).get("role")
        if role not in (None, "", "user", "model", "function"):
            problems.append(f"{path}: unknown role {quote(role)}")
        if not _parts(item) and not message.text:
            problems.append(f"{path}: the content is empty")
        for part in _parts(item):
            call = as_dict(_get(part, "functionCall"))
            if call and not isinstance(call.get("args", {}), dict):
                name = as_str(call.get("name"))
                problems.append(f"{path}: the arguments of {quote(name)} are not an object")
    return problems + find_turn_problems(list(zip(paths, talk, strict=True)))


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    return read_stream([data])


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the chunks of a streamed answer. Each chunk is an answer with the next parts."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    found: list[MessagePart] = []
    model = finish = blocked = error = None
    usage: dict[str, Any] = {}
    for event in events:
        model = find_model(_get(event, "modelVersion")) or model
        usage |= as_dict(_get(event, "usageMetadata"))
        error = error_text(event.get("error")) or error
        blocked = find_str(_get(as_dict(_get(event, "promptFeedback")), "blockReason")) or blocked
        candidate = next(iter(dicts(event.get("candidates"))), {})
        finish = find_str(_get(candidate, "finishReason")) or finish
        parts = _parts(candidate.get("content"))
        texts += [as_str(p.get("text")) for p in parts if p.get("thought") is not True]
        calls += _calls(parts)
        found += _read_parts(parts)
    return Response(
        provider=PROVIDER,
        model=model,
        text="".join(texts),
        calls=calls,
        parts=join_parts(found),
        finish_reason=_finish(finish, bool(calls), blocked, error),
        usage=_usage(usage),
        error=error,
    )


def _finish(reason: str | None, calls: bool, blocked: str | None, error: str | None) -> str | None:
    if error:
        return "error"
    if reason is None:
        return "content_filter" if blocked else None
    word = FINISH.get(reason, "other")
    return "tool_calls" if calls and word == "stop" else word


def _usage(usage: dict[str, Any]) -> Usage:
    def count(name: str) -> int | None:
        return find_int(_get(usage, name))

    return Usage(
        input_tokens=total(count("promptTokenCount"), count("toolUsePromptTokenCount")),
        output_tokens=total(count("candidatesTokenCount"), count("thoughtsTokenCount")),
        cache_read_tokens=count("cachedContentTokenCount"),
    )
