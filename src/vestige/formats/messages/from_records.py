"""A run as fine-tuning examples: one list of messages for each thread of model calls.

    {"messages": [...], "tools": [...]}                       OpenAI
    {"system": "...", "messages": [...], "tools": [...]}      Anthropic

Images and other media are left out; a text in brackets names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from vestige.formats.openai_bodies import to_tool_calls
from vestige.formats.protocol import RunToWrite
from vestige.formats.run_to_threads import MessageThread, Turn, read_threads, to_openai_tool
from vestige.providers.chat_types import ToolCall

Object = dict[str, Any]
Shape = Literal["openai", "anthropic"]
SHAPES: Final[tuple[Shape, ...]] = ("openai", "anthropic")


def run_to_examples(source: RunToWrite, shape: Shape = "openai") -> Iterator[Object]:
    """Yield an example for each thread that has an answer."""
    for thread in read_threads(source):
        if any(turn.role == "assistant" for turn in thread.turns):
            yield thread_to_example(thread, thread.turns, shape)


def thread_to_example(thread: MessageThread, turns: list[Turn], shape: Shape) -> Object:
    """Return some turns of a thread as an example."""
    tools = [tool for tool in map(to_openai_tool, thread.tools) if tool is not None]
    if shape == "anthropic":
        return _to_anthropic(turns, tools)
    example: Object = {"messages": list(_openai_messages(turns))}
    return example | ({"tools": tools} if tools else {})


def _number_calls(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Yield the turns with an id for every call, which both providers require."""
    count = 0
    waiting: list[str] = []
    for turn in turns:
        calls = []
        for call in turn.calls:
            if not call.id:
                count += 1
                call = msgspec.structs.replace(call, id=f"call_{count}")
                waiting.append(call.id or "")
            calls.append(call)
        results = [
            result if result.call_id else msgspec.structs.replace(result, call_id=waiting.pop(0))
            for result in turn.results
            if result.call_id or waiting
        ]
        yield msgspec.structs.replace(turn, calls=calls, results=results)


def _openai_messages(turns: list[Turn]) -> Iterator[Object]:
    agents = {turn.span.component for turn in turns if turn.span is not None}
    for turn in _number_calls(turns):
        for result in turn.results:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
        text = _text(turn)
        if turn.role == "assistant":
            answer: Object = {"role": "assistant", "content": text or None}
            if len(agents) > 1 and turn.span is not None:
                answer["name"] = turn.span.component
            if turn.calls:
                answer["tool_calls"] = to_tool_calls(turn.calls)
            elif not text:
                answer["content"] = ""
            yield answer
        elif text or not turn.results:
            yield {"role": turn.role if turn.role == "system" else "user", "content": text}


def _to_anthropic(turns: list[Turn], tools: list[Object]) -> Object:
    system: list[str] = []
    messages: list[Object] = []
    for turn in _number_calls(turns):
        if turn.role == "system" and not messages:
            system.append(_text(turn))
            continue
        role = "assistant" if turn.role == "assistant" else "user"
        blocks: list[Object] = [
            {
                "type": "tool_result",
                "tool_use_id": result.call_id,
                "content": result.text,
                **({"is_error": True} if result.is_error else {}),
            }
            for result in turn.results
        ]
        text = _text(turn)
        if text:
            blocks.append({"type": "text", "text": text})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call)}
            for call in turn.calls
        ]
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:  # roles alternate there
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    if messages and messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [{"type": "text", "text": "…"}]})
    example: Object = {"system": "\n\n".join(system)} if system else {}
    example["messages"] = messages
    if tools:
        example["tools"] = [
            {
                "name": tool["function"].get("name"),
                "description": tool["function"].get("description", ""),
                "input_schema": tool["function"].get("parameters") or {"type": "object"},
            }
            for tool in tools
        ]
    return example


def _text(turn: Turn) -> str:
    return "\n".join([*filter(None, [turn.text]), *(f"[{media}]" for media in turn.media)])


def _arguments(call: ToolCall) -> Object:
    try:
        value = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"input": value}
