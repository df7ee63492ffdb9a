"""Cohere's chat API and Hugging Face's text generation, complete and streamed."""

from __future__ import annotations

import json
from typing import Any

from vestige.providers.chat_types import Response, ToolCall, ToolResult, Usage
from vestige.providers.parsing import parse_request, parse_response

FUNCTION = {"name": "look", "arguments": '{"at":"door"}'}
CALL = {"id": "look_1", "type": "function", "function": FUNCTION}
USAGE = {
    "billed_units": {"input_tokens": 12, "output_tokens": 5},
    "tokens": {"input_tokens": 480, "output_tokens": 9},
    "cached_tokens": 3,
}


def answer(data: object, hint: str | None = None) -> Response:
    response = parse_response(data if isinstance(data, str) else json.dumps(data), hint)
    assert response is not None
    return response


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def message(**fields: Any) -> dict[str, Any]:
    return {"message": fields}


def test_a_request_has_the_plan_before_its_calls_and_documents_as_results() -> None:
    request = parse_request(
        json.dumps(
            {
                "model": "command-a-03-2025",
                "messages": [
                    {"role": "user", "content": "Look."},
                    {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]},
                    {
                        "role": "tool",
                        "tool_call_id": "look_1",
                        "content": [{"type": "document", "document": {"data": '{"seen":1}'}}],
                    },
                ],
            }
        )
    )

    assert request is not None
    assert (request.provider, request.model) == ("cohere", "command-a-03-2025")
    _, call, result = request.messages
    assert (call.text, call.calls[0].name) == ("I look.", "look")
    assert [part.kind for part in call.parts] == ["text", "tool_call"]
    assert result.results == [ToolResult(call_id="look_1", text='{"seen":1}')]
    assert request.problems == []


def test_an_answer_is_the_same_complete_and_streamed() -> None:
    """The tokens that Cohere bills are the usage."""
    complete = answer(
        {
            "id": "a",
            "finish_reason": "TOOL_CALL",
            "message": {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]},
            "usage": USAGE,
        }
    )
    start = {"id": "look_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    streamed = answer(
        stream(
            {"type": "message-start", "id": "a", "delta": message(role="assistant")},
            {"type": "tool-plan-delta", "delta": message(tool_plan="I ")},
            {"type": "tool-plan-delta", "delta": message(tool_plan="look.")},
            {"type": "tool-call-start", "index": 0, "delta": message(tool_calls=start)},
            {
                "type": "tool-call-delta",
                "index": 0,
                "delta": message(tool_calls={"function": {"arguments": '{"at":"door"}'}}),
            },
            {"type": "tool-call-end", "index": 0},
            {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": USAGE}},
        )
    )

    assert complete == streamed
    assert (complete.provider, complete.text) == ("cohere", "I look.")
    assert complete.finish_reason == "tool_calls"
    assert complete.calls == [ToolCall(id="look_1", name="look", arguments='{"at":"door"}')]
    assert complete.usage == Usage(input_tokens=12, output_tokens=5, cache_read_tokens=3)


def test_streamed_thinking_and_text_are_parts() -> None:
    response = answer(
        stream(
            {
                "type": "content-start",
                "index": 0,
                "delta": message(content={"type": "thinking", "thinking": ""}),
            },
            {"type": "content-delta", "index": 0, "delta": message(content={"thinking": "Hm."})},
            {"type": "content-delta", "index": 1, "delta": message(content={"text": "Hel"})},
            {"type": "content-delta", "index": 1, "delta": message(content={"text": "lo"})},
            {"type": "message-end", "delta": {"finish_reason": "MAX_TOKENS", "usage": USAGE}},
        )
    )

    assert [(p.kind, p.text) for p in response.parts] == [("thinking", "Hm."), ("text", "Hello")]
    assert (response.text, response.finish_reason) == ("Hello", "length")


def test_an_error_body_is_an_error() -> None:
    response = answer({"message": "invalid api token"}, "cohere")

    assert (response.error, response.finish_reason) == ("invalid api token", "error")


def test_text_generation_is_read_complete_and_streamed() -> None:
    request = parse_request('{"inputs": "Say hello", "parameters": {"max_new_tokens": 5}}')
    details = {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 3}
    complete = answer([{"generated_text": "Hello", "details": details}])
    streamed = answer(
        stream(
            {"index": 1, "token": {"text": "Hel", "special": False}, "generated_text": None},
            {
                "index": 2,
                "token": {"text": "lo", "special": False},
                "generated_text": "Hello",
                "details": details,
            },
        )
    )

    assert request is not None
    assert (request.messages[0].text, request.max_output_tokens) == ("Say hello", 5)
    for response in (complete, streamed):
        assert (response.text, response.finish_reason) == ("Hello", "stop")
        assert response.usage == Usage(input_tokens=3, output_tokens=2)


def test_groq_counts_its_tokens_in_a_field_of_its_own() -> None:
    counts = {"prompt_tokens": 12, "completion_tokens": 5}
    response = answer(
        stream(
            {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "model_length"}]},
            {"choices": [], "x_groq": {"id": "r", "usage": counts}},
        )
    )

    assert (response.usage.input_tokens, response.usage.output_tokens) == (12, 5)
    assert response.finish_reason == "length"
