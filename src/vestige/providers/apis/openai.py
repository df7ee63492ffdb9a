"""OpenAI chat completions, and servers with the same API (vLLM, Ollama, LiteLLM, Azure, ...).

Usage: `prompt_tokens` includes cached tokens, and `completion_tokens` includes reasoning; both are
used as they are. If the total shows that reasoning is not included (xAI), it is added, because it
is billed as output. With several choices, the first one is the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vestige._runtime.msgspec_or_fallback import msgspec
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
from vestige.providers.framework_roles import (
    CALL_ROLES,
    RESULT_ROLES,
    is_framework_body,
    parse_calls,
    parse_result,
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
    json_size,
    json_text,
    quote,
)
from vestige.providers.json_offsets import UNKNOWN, Layout, find_breakpoints
from vestige.providers.media import Media, describe_base64, find_base64_size
from vestige.providers.message_parts import (
    join_parts,
    media_part,
    read_parts,
    read_result_content,
    thinking_part,
)
from vestige.providers.parse_cache import RecentValues
from vestige.providers.tool_pairing import PROBLEMS_MAX, Turn, find_pairing_problems

PROVIDER = "openai"

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    **dict.fromkeys(CALL_ROLES, "assistant"),
    **dict.fromkeys(RESULT_ROLES, "tool"),
}

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Thinking beside the content: DeepSeek, vLLM and Qwen; OpenRouter and Groq; Ollama."""

FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
    # Mistral, and Text Generation Inference.
    "model_length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
}


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a chat completions request; `data` is `body`, decoded."""
    layout = Layout(body)
    items = as_list(data.get("messages"))
    spans = layout.items("messages", len(items))
    read = [
        _READ_ITEMS.get(body[begin:end], as_dict(item))
        for item, (begin, end) in zip(items, spans, strict=True)
    ]
    messages = [
        msgspec.structs.replace(each.message, begin=begin, end=end)
        for each, (begin, end) in zip(read, spans, strict=True)
    ]
    tools, parts = [], []
    for key in ("tools", "functions"):
        offered = as_list(data.get(key))
        for n, (item, span) in enumerate(
            zip(offered, layout.items(key, len(offered)), strict=True)
        ):
            parts.append(layout.part("tool", f"{key}[{n}]", None, span, n))
            tools.append(read_tool(item, span))
    if isinstance(data.get("response_format"), dict):
        span = layout.span("response_format")
        parts.append(layout.part("setting", "response_format", None, span))
    for n, (message, span) in enumerate(zip(messages, spans, strict=True)):
        parts.append(layout.part("message", f"messages[{n}]", message.role, span, n))
    prompt = [part for part in parts if part.end] if UNKNOWN not in spans else []
    breakpoints = find_breakpoints(body, prompt)
    limit = find_int(data.get("max_completion_tokens"))
    return Request(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        messages=messages,
        tools=tools,
        breakpoints=breakpoints,
        prefix_end=(breakpoints or [span[1] for span in spans] or [0])[-1],
        max_output_tokens=find_int(data.get("max_tokens")) if limit is None else limit,
        problems=_find_problems(items, read)[:PROBLEMS_MAX],
        prompt=prompt,
    )


class _ReadItem(NamedTuple):
    """A message without its offsets, and what is wrong with it by itself."""

    message: Message
    problems: Sequence[str]


def _read_item(item: dict[str, Any]) -> _ReadItem:
    return _ReadItem(_message(item), _find_own_problems(item))


_READ_ITEMS: RecentValues[dict[str, Any], _ReadItem] = RecentValues(_read_item)


def read_tool(item: object, span: tuple[int, int]) -> ToolSchema:
    """Parse a tool: in `function` or `custom` (chat completions), or flat (Responses, legacy)."""
    tool = as_dict(item)
    function = as_dict(tool.get("function")) or as_dict(tool.get("custom")) or tool
    parameters = function.get("parameters")
    size = span[1] - span[0]
    return ToolSchema(
        name=find_str(function.get("name")) or as_str(tool.get("type")),
        parameters=parameters if isinstance(parameters, dict) else None,
        size_bytes=size or json_size(item),
    )


def content_text(content: object) -> str:
    """Return the text of a content: a string, or the parts that have text."""
    if isinstance(content, str):
        return content
    return join_texts([_block_text(part) for part in dicts(content)])


def _block_text(part: dict[str, Any]) -> str:
    document = as_dict(part.get("document")).get("data")  # Cohere
    written = as_str(part.get("text")) or as_str(part.get("refusal"))
    return written or (json_text(document) if document else "")


def _message(item: dict[str, Any]) -> Message:
    role = as_str(item.get("role"))
    text = content_text(item.get("content")) or as_str(item.get("refusal"))
    calls = _calls(item)
    results = []
    if role in ("tool", "function"):
        named = item.get("name") if role == "function" else None
        ids = (item.get("tool_call_id"), item.get("tool_name"), named)
        call_id = next((found for found in map(find_str, ids) if found), None)
        media = read_result_content(item.get("content"))[1]
        results = [ToolResult(call_id=call_id, text=text, parts=media)]
        text = ""
    elif role in RESULT_ROLES:
        results, text = [parse_result(text)], ""
    elif role in CALL_ROLES and not calls:
        calls = parse_calls(text)
        text = "" if calls else text
    if results:
        parts = [result_part(result) for result in results]
    elif role in CALL_ROLES:
        parts = [*read_parts(text), *map(call_part, calls)]
    else:
        parts = read_message_parts(item, calls)
    return Message(
        role=ROLES.get(role, role),
        text=text,
        calls=calls,
        results=results,
        parts=parts,
        begin=0,
        end=0,
    )


def read_message_parts(item: dict[str, Any], calls: list[ToolCall]) -> list[MessagePart]:
    """Return the parts of a message: thinking, content, media beside the content, tool calls."""
    parts = [*_thinking_parts(item), *read_parts(item.get("content"))]
    parts += read_parts({"type": "refusal", "refusal": r} if (r := item.get("refusal")) else None)
    parts += read_parts([b for b in as_list(item.get("images")) if isinstance(b, dict)])
    for image in as_list(item.get("images")):  # Ollama: base64 without a wrapper
        if isinstance(image, str):
            parts.append(media_part("image", "images", describe_base64(image)))
    if isinstance(item.get("audio"), dict):
        parts += read_parts({"type": "audio", **item["audio"]})
    return parts + [call_part(call) for call in calls]


def _thinking_parts(item: dict[str, Any]) -> list[MessagePart]:
    blocks = item.get("reasoning_details") or item.get("thinking_blocks")  # OpenRouter; LiteLLM
    if isinstance(blocks, list) and blocks:
        return read_parts([{"type": "reasoning", **b} for b in dicts(blocks)])
    found = ((key, find_str(item.get(key))) for key in REASONING_KEYS)
    return [thinking_part(text, key) for key, text in found if text][:1]


def call_part(call: ToolCall) -> MessagePart:
    """Return a tool call as a part of its message."""
    return MessagePart(
        kind="tool_call", name=call.name or None, call_id=call.id, text=call.arguments
    )


def result_part(result: ToolResult) -> MessagePart:
    """Return a tool result as a part of its message."""
    return MessagePart(
        kind="tool_result",
        call_id=result.call_id,
        text=result.text,
        is_error=result.is_error,
        parts=result.parts,
    )


def _calls(item: dict[str, Any]) -> list[ToolCall]:
    calls = []
    for call in dicts(item.get("tool_calls")):
        # A custom tool has free text as `input`.
        function = as_dict(call.get("function")) or as_dict(call.get("custom"))
        arguments = function.get("arguments", function.get("input", ""))
        calls.append(
            ToolCall(
                id=find_str(call.get("id")),
                name=as_str(function.get("name")),
                arguments=json_text(arguments),
            )
        )
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        name, arguments = as_str(legacy.get("name")), json_text(legacy.get("arguments", ""))
        calls.append(ToolCall(id=None, name=name, arguments=arguments))
    return calls


def _find_problems(items: list[Any], read: list[_ReadItem]) -> list[str]:
    if is_framework_body(items):
        return []
    problems = []
    turns: list[Turn] = []
    ollama = _is_ollamas(items)
    if not read:
        problems.append("messages: there are none")
    for n, (item, (message, own)) in enumerate(zip(items, read, strict=True)):
        path = f"messages[{n}]"
        problems += [f"{path}: {what}" for what in own]
        legacy = "function_call" in as_dict(item) or as_dict(item).get("role") == "function"
        if legacy or ollama:  # paired by order, without ids: nothing to check
            message = msgspec.structs.replace(message, calls=[], results=[])
        turns.append((path, message))
    return problems + find_pairing_problems(turns, adjacent=True)


def _is_ollamas(items: list[Any]) -> bool:
    """Return whether messages are those of Ollama's API: arguments are an object, calls may have no
    id, and a result names its tool."""
    for item in dicts(items):
        if "tool_name" in item and "tool_call_id" not in item:
            return True
        for call in dicts(item.get("tool_calls")):
            arguments = as_dict(call.get("function")).get("arguments")
            if isinstance(arguments, dict) and not call.get("id"):
                return True
    return False


def _find_own_problems(item: dict[str, Any]) -> list[str]:
    """Find violations inside one message."""
    problems = []
    role, content = as_str(item.get("role")), item.get("content")
    if role not in ROLES:
        problems.append(f"unknown role {quote(role)}")
    if item.get("tool_calls") and role != "assistant":
        problems.append(f"tool calls in a message of role {quote(role)}")
    speaks = any(item.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
    empty = content is None or content == [] or (content == "" and role == "user")
    if empty and not speaks:
        problems.append("the content is empty")
    if item.get("tool_calls") == []:
        problems.append("tool_calls is an empty array")
    for call in dicts(item.get("tool_calls")):
        function = as_dict(call.get("function"))
        arguments = function.get("arguments")
        if isinstance(arguments, str) and not is_json(arguments):
            problems.append(f"the arguments of {quote(as_str(function.get('name')))} are not JSON")
    legacy = as_dict(item.get("function_call"))
    if legacy and not is_json(as_str(legacy.get("arguments"))):
        problems.append(f"the arguments of {quote(as_str(legacy.get('name')))} are not JSON")
    return problems


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    choice = next(iter(dicts(data.get("choices"))), {})
    message = as_dict(choice.get("message"))
    text = content_text(message.get("content")) or as_str(message.get("refusal"))
    older = as_str(choice.get("text"))  # the older completions
    error = _error(data)
    calls = _calls(message)
    return Response(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        text=text or older,
        calls=calls,
        parts=read_message_parts(message, calls) or read_parts(older),
        finish_reason="error" if error else _finish(choice.get("finish_reason")),
        usage=_usage(data.get("usage")),
        error=error,
    )


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the chunks of a streamed answer."""
    texts: list[str] = []
    parts: list[MessagePart] = []
    audio = _Audio()
    calls = _Calls()
    model: str | None = None
    finish: object = None
    usage: object = None
    error: str | None = None
    for event in events:
        model = find_str(event.get("model")) or model
        usage = event.get("usage") or as_dict(event.get("x_groq")).get("usage") or usage
        error = _error(event) or error
        for choice in dicts(event.get("choices")):
            if choice.get("index") not in (None, 0):
                continue
            delta = as_dict(choice.get("delta"))
            texts.append(content_text(delta.get("content")) or as_str(delta.get("refusal")))
            texts.append(as_str(choice.get("text")))
            finish = choice.get("finish_reason") or finish
            calls.add(delta)
            audio.add(as_dict(delta.get("audio")))
            parts += read_message_parts({k: v for k, v in delta.items() if k != "audio"}, [])
            parts += read_parts(choice.get("text"))
    requested = calls.joined()
    parts = [*join_parts(parts), *audio.parts(), *map(call_part, requested)]
    return Response(
        provider=PROVIDER,
        model=model,
        text="".join(texts),
        calls=requested,
        parts=parts,
        finish_reason="error" if error else _finish(finish),
        usage=_usage(usage),
        error=error,
    )


class _Audio:
    """Joins the audio of a stream: base64 data and a transcript, in pieces."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {"id": [], "data": [], "transcript": []}

    def add(self, fields: dict[str, Any]) -> None:
        for name, pieces in self._fields.items():
            if isinstance(fields.get(name), str):
                pieces.append(fields[name])

    def parts(self) -> list[MessagePart]:
        if not any(self._fields.values()):
            return []
        size = sum(find_base64_size(piece) for piece in self._fields["data"])
        media = Media(size_bytes=size or None)
        text = "".join(self._fields["transcript"])
        found = next(iter(self._fields["id"]), None)
        return [media_part("audio", "audio", media, file_id=found, text=text)]


class _Calls:
    """Joins the fragments of each call: the first has id and name, the others more arguments."""

    def __init__(self) -> None:
        self._latest: dict[int, _Call] = {}
        self._all: list[tuple[int, _Call]] = []

    def add(self, delta: dict[str, Any]) -> None:
        fragments = list(enumerate(dicts(delta.get("tool_calls"))))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            fragments.append((0, {"index": -1, "function": legacy}))
        for position, fragment in fragments:
            index = fragment.get("index")
            key = index if isinstance(index, int) else position
            function = as_dict(fragment.get("function"))
            call_id, name = as_str(fragment.get("id")), as_str(function.get("name"))
            call = self._latest.get(key)
            # Some servers have no index, or the same for all calls: a new id with a name is a
            # new call.
            if call is None or (name and call_id and call.id and call_id != call.id):
                call = self._latest[key] = _Call()
                self._all.append((key, call))
            call.id, call.name = call.id or call_id, call.name or name
            arguments = function.get("arguments")
            if arguments is not None:
                call.arguments.append(json_text(arguments))

    def joined(self) -> list[ToolCall]:
        return [
            ToolCall(id=call.id or None, name=call.name, arguments="".join(call.arguments))
            for _, call in sorted(self._all, key=lambda each: each[0])
        ]


class _Call:
    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []


def _error(data: dict[str, Any]) -> str | None:
    if data.get("object") == "error":  # vLLM
        return error_text(data)
    return error_text(data.get("error"))


def _finish(reason: object) -> str | None:
    return FINISH.get(reason, "other") if isinstance(reason, str) else None


def _usage(value: object) -> Usage:
    usage = as_dict(value)
    details = as_dict(usage.get("prompt_tokens_details"))
    # OpenAI and most; DeepSeek; LiteLLM in front of Anthropic. The last: OpenRouter, LiteLLM.
    reads = (
        details.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cache_read_input_tokens"),
    )
    writes = (details.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=find_int(usage.get("prompt_tokens")),
        output_tokens=_output(usage),
        cache_read_tokens=next((find_int(n) for n in reads if n is not None), None),
        cache_write_tokens=next((find_int(n) for n in writes if n is not None), None),
    )


def _output(usage: dict[str, Any]) -> int | None:
    output = find_int(usage.get("completion_tokens"))
    thought = find_int(as_dict(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    prompt = find_int(usage.get("prompt_tokens"))
    if output is None or thought is None or prompt is None:
        return output
    on_top = find_int(usage.get("total_tokens")) == prompt + output + thought
    return output + thought if on_top else output
