"""Requests and answers in the shapes of the OpenAI and Anthropic chat APIs.

body = build_request(endpoint, messages, tools, output_max=800)
turn = parse_turn("openai", data)        # None: not an answer of this API
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vestige.explain.model_endpoint import Api, Endpoint
from vestige.providers.chat_types import Usage
from vestige.providers.parsing import parse_response

Limit = Literal["max_tokens", "max_completion_tokens"]
"""The name of the output limit in a request: new models of OpenAI accept only the second."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call in an answer."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """None: they are not a JSON object."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to a tool call."""

    call_id: str
    text: str


@dataclass(slots=True)
class ChatMessage:
    """A message: a text of the user, results of tools, or an answer of the model."""

    text: str = ""
    results: list[ToolResult] = field(default_factory=list)
    answer: dict[str, Any] | None = None
    """The answer as the provider sent it, to be sent back unchanged."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An answer of the model."""

    text: str
    calls: Sequence[RequestedCall]
    usage: Usage
    message: ChatMessage
    is_truncated: bool = False
    """True if it ended at the limit of its tokens."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that a request offers."""

    name: str
    description: str
    schema: Mapping[str, Any]


def build_request(
    endpoint: Endpoint,
    system: str,
    messages: Sequence[ChatMessage],
    tools: Sequence[OfferedTool],
    output_max: int,
    *,
    limit: Limit = "max_tokens",
    forced: str | None = None,
) -> dict[str, Any]:
    """Return the body of a request. `forced`: the tool that the model must call."""
    if endpoint.api == "anthropic":
        body: dict[str, Any] = {
            "model": endpoint.model,
            "max_tokens": output_max,
            "system": system,
            "messages": [_anthropic_message(each) for each in messages],
            "tools": [
                {"name": t.name, "description": t.description, "input_schema": t.schema}
                for t in tools
            ],
        }
        if forced is not None:
            body["tool_choice"] = {"type": "tool", "name": forced}
        return body
    body = {
        "model": endpoint.model,
        limit: output_max,
        "messages": [
            {"role": "system", "content": system},
            *(part for each in messages for part in _openai_messages(each)),
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": t.name,
                    "description": t.description,
                    "parameters": t.schema,
                },
            }
            for t in tools
        ],
    }
    if forced is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": forced}}
    return body


def _anthropic_message(message: ChatMessage) -> dict[str, Any]:
    if message.answer is not None:
        return message.answer
    blocks: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
        for result in message.results
    ]
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    return {"role": "user", "content": blocks}


def _openai_messages(message: ChatMessage) -> list[dict[str, Any]]:
    if message.answer is not None:
        return [message.answer]
    found: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
        for result in message.results
    ]
    if message.text:
        found.append({"role": "user", "content": message.text})
    return found


def parse_turn(api: Api, data: Mapping[str, Any]) -> Turn | None:
    """Parse an answer. None: it does not have the shape of this API."""
    answer = _find_answer(api, data)
    if api == "openai" and answer is not None:  # with the ids of `answer`
        data = {**data, "choices": [{**data["choices"][0], "message": answer}]}
    response = None if answer is None else parse_response(json.dumps(data), api)
    if answer is None or response is None or response.error:
        return None
    calls = []
    for call in response.calls:
        if not call.id or not call.name:
            return None
        calls.append(RequestedCall(call.id, call.name, _parse_arguments(call.arguments)))
    is_truncated = response.finish_reason == "length"
    return Turn(response.text, calls, response.usage, ChatMessage(answer=answer), is_truncated)


def _find_answer(api: Api, data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the message of an answer, in the form in which it is sent back."""
    if api == "anthropic":
        content = data.get("content")
        return {"role": "assistant", "content": content} if _is_objects(content) else None
    choices: Any = data.get("choices")
    if not _is_objects(choices):
        return None
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return None
    calls, content = message.get("tool_calls"), message.get("content")
    if calls and not _is_objects(calls):
        return None
    text = content if isinstance(content, str) else ""
    refusal = message.get("refusal")
    if not text and not calls and isinstance(refusal, str):
        text = refusal
    answer = {"role": "assistant", "content": text}
    return {**answer, "tool_calls": _name_calls(calls)} if calls else answer


def _name_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give tool calls an id where a compatible server sends none, or a number."""
    return [
        {**call, "id": str(call.get("id") or f"call_{number}")} for number, call in enumerate(calls)
    ]


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _parse_arguments(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
