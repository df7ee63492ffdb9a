"""Amazon Bedrock Converse and ConverseStream; also the messages that Strands records.

Blocks have one key instead of a type: `text`, `toolUse`, `toolResult`, `reasoningContent`, `image`.
Usage: `inputTokens` leaves out cached tokens, as Anthropic's does; the three counts are added up.
The model is in the URL. InvokeModel has the body of the model's own API and is read by its module.
"""

from __future__ import annotations

from typing import Any

from vestige.providers.chat_types import (
    Message,
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
    find_int,
    find_str,
    join_texts,
    json_size,
    json_text,
    quote,
    total,
)
from vestige.providers.json_offsets import UNKNOWN, Layout
from vestige.providers.message_parts import read_parts, read_result_content
from vestige.providers.tool_pairing import PROBLEMS_MAX, find_pairing_problems

PROVIDER = "bedrock"

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}

BLOCK_KEYS = frozenset({"toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent"})
"""Keys that only a block of Converse has."""

EVENT_KEYS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"}
)


def has_converse_blocks(messages: list[dict[str, Any]]) -> bool:
    """Return whether messages have the blocks of Converse."""
    for message in messages:
        for block in dicts(message.get("content")):
            if "type" not in block and (BLOCK_KEYS & block.keys() or set(block) == {"text"}):
                return True
    return False


def is_error(data: dict[str, Any]) -> bool:
    """Return whether an event or body reports an exception of the service."""
    return any(key.endswith("Exception") for key in data)


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a Converse request; `data` is `body`, decoded."""
    layout = Layout(body)
    items = as_list(data.get("messages"))
    spans = layout.items("messages", len(items))
    messages = [_message(as_dict(item), *span) for item, span in zip(items, spans, strict=True)]
    config = as_dict(data.get("toolConfig"))
    tools = [as_dict(tool.get("toolSpec")) for tool in dicts(config.get("tools"))]
    parts = []
    if config:
        parts.append(layout.part("tool", "toolConfig", None, layout.span("toolConfig")))
    system = []
    if data.get("system"):
        begin, end = layout.span("system")
        content = read_parts(data["system"])
        text = join_texts([part.text for part in content])
        system = [Message(role="system", text=text, parts=content, begin=begin, end=end)]
        parts.append(layout.part("system", "system", "system", (begin, end)))
    for n, (message, span) in enumerate(zip(messages, spans, strict=True)):
        parts.append(layout.part("message", f"messages[{n}]", message.role, span, n))
    inference = as_dict(data.get("inferenceConfig"))
    return Request(
        provider=PROVIDER,
        model=find_model(data.get("modelId") or data.get("model")),
        messages=system + messages,
        tools=[_tool(tool) for tool in tools if tool],
        breakpoints=[],
        prefix_end=spans[-1][1] if spans else 0,
        max_output_tokens=find_int(inference.get("maxTokens")),
        problems=_find_problems(items, messages)[:PROBLEMS_MAX],
        prompt=[part for part in parts if part.end] if UNKNOWN not in spans else [],
    )


def find_model(value: object) -> str | None:
    """Return a model id; of the ARN of an inference profile, its last part."""
    name = find_str(value)
    return name.rsplit("/", 1)[-1] if name and name.startswith("arn:") else name


def _tool(spec: dict[str, Any]) -> ToolSchema:
    schema = as_dict(spec.get("inputSchema")).get("json")
    return ToolSchema(
        name=as_str(spec.get("name")),
        parameters=schema if isinstance(schema, dict) else None,
        size_bytes=json_size(spec),
    )


def _message(item: dict[str, Any], begin: int, end: int) -> Message:
    content = item.get("content")
    results = [_result(as_dict(b["toolResult"])) for b in dicts(content) if "toolResult" in b]
    role = as_str(item.get("role"))
    return Message(
        role="tool" if results and role == "user" and not _text(content) else role,
        text=_text(content),
        calls=_calls(content),
        results=results,
        parts=read_parts(content),
        begin=begin,
        end=end,
    )


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return join_texts([as_str(block.get("text")) for block in dicts(content)])


def _calls(content: object) -> list[ToolCall]:
    calls = []
    for block in dicts(content):
        use = block.get("toolUse")
        if isinstance(use, dict):
            arguments = json_text(use.get("input", {}))
            name = as_str(use.get("name"))
            calls.append(
                ToolCall(id=find_str(use.get("toolUseId")), name=name, arguments=arguments)
            )
    return calls


def _result(result: dict[str, Any]) -> ToolResult:
    text, parts = read_result_content(result.get("content"))
    return ToolResult(
        call_id=find_str(result.get("toolUseId")),
        text=text,
        is_error=result.get("status") == "error",
        parts=parts,
    )


def _find_problems(items: list[Any], messages: list[Message]) -> list[str]:
    problems = []
    if not items:
        problems.append("messages: there are none")
    for n, item in enumerate(items):
        role = as_dict(item).get("role")
        if role not in ("user", "assistant"):
            problems.append(f"messages[{n}]: unknown role {quote(role)}")
        if as_dict(item).get("content") in (None, [], ""):
            problems.append(f"messages[{n}]: the content is empty")
    turns = [(f"messages[{n}]", message) for n, message in enumerate(messages)]
    return problems + find_pairing_problems(turns, adjacent=True)


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    output = as_dict(data.get("output"))
    content = as_dict(output.get("message")).get("content")
    error = _error(data)
    return Response(
        provider=PROVIDER,
        model=find_model(data.get("modelId")),
        text=_text(content),
        calls=_calls(content),
        parts=read_parts(content),
        finish_reason="error" if error else _finish(data.get("stopReason")),
        usage=_usage(as_dict(data.get("usage"))),
        error=error,
    )


def _error(data: dict[str, Any]) -> str | None:
    for key, value in data.items():
        if key.endswith("Exception"):
            message = as_str(as_dict(value).get("message")) or as_str(value)
            return f"{key}: {message}" if message else key
    if "output" in data or "stopReason" in data:
        return None
    return find_str(data.get("message")) or find_str(data.get("Message"))


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the events of a streamed answer."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    data: dict[str, Any] = {}
    for event in events:
        name = next(iter(event), "")
        fields = as_dict(event.get(name))
        number = fields.get("contentBlockIndex")
        index = number if isinstance(number, int) else 0
        if name == "contentBlockStart":
            blocks[index] = dict(as_dict(fields.get("start")))
        elif name == "contentBlockDelta":
            _add_delta(blocks.setdefault(index, {}), inputs.setdefault(index, []), fields)
        elif name == "messageStop":
            data["stopReason"] = fields.get("stopReason")
        elif name == "metadata":
            data["usage"] = fields.get("usage")
        elif name.endswith("Exception"):
            data[name] = fields
    for index, pieces in inputs.items():
        use = blocks[index].get("toolUse")
        if isinstance(use, dict):
            text = "".join(pieces)
            blocks[index]["toolUse"] = {**use, "input": text or {}}
    content = [_join(block) for _, block in sorted(blocks.items())]
    data["output"] = {"message": {"content": content}}
    return read_response(data)


def _add_delta(block: dict[str, Any], inputs: list[str], fields: dict[str, Any]) -> None:
    delta = as_dict(fields.get("delta"))
    if isinstance(delta.get("text"), str):
        block.setdefault("text", []).append(delta["text"])
    if isinstance(delta.get("toolUse"), dict):
        block.setdefault("toolUse", {})
        inputs.append(as_str(delta["toolUse"].get("input")))
    reasoning = as_dict(delta.get("reasoningContent"))
    for key in ("text", "redactedContent"):
        if isinstance(reasoning.get(key), str):
            pieces = block.setdefault("reasoningContent", {}).setdefault(key, [])
            pieces.append(reasoning[key])


def _join(block: dict[str, Any]) -> dict[str, Any]:
    """Join the pieces of one block."""
    joined = dict(block)
    if isinstance(block.get("text"), list):
        joined["text"] = "".join(block["text"])
    thinking = block.get("reasoningContent")
    if isinstance(thinking, dict):
        joined["reasoningContent"] = {
            "reasoningText": {"text": "".join(thinking.get("text", []))},
            "redactedContent": "".join(thinking.get("redactedContent", [])),
        }
    return joined


def _finish(reason: object) -> str | None:
    return FINISH.get(reason, "other") if isinstance(reason, str) else None


def _usage(usage: dict[str, Any]) -> Usage:
    read = find_int(usage.get("cacheReadInputTokens"))
    written = find_int(usage.get("cacheWriteInputTokens"))
    fresh = find_int(usage.get("inputTokens"))
    return Usage(
        input_tokens=total(fresh, read, written) if fresh is not None else None,
        output_tokens=find_int(usage.get("outputTokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
