"""Gemini: contents of parts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.providers.chat_types import Request, ToolCall, Usage
from vestige.providers.parsing import parse_request, parse_response

ASK = {"role": "user", "parts": [{"text": "Warm?"}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"city": "Bern"}}}]}
RESULT = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "f", "response": {"output": "14 °C"}}}],
}
ANSWER = {"role": "model", "parts": [{"text": "Fourteen."}]}


def read(*contents: Any) -> Request:
    request = parse_request(json.dumps({"contents": list(contents)}))
    assert request is not None
    assert request.provider == "gemini"
    return request


def test_a_request_is_read_with_the_place_of_each_message() -> None:
    """The model is in the URL; a result without id is known by its tool's name."""
    contents = [ASK, CALL, RESULT]
    system = {"parts": [{"text": "Be brief."}]}
    function = {"name": "f", "parameters": {"type": "OBJECT"}}
    data = {
        "contents": contents,
        "systemInstruction": system,
        "tools": [{"functionDeclarations": [function]}, {"googleSearch": {}}],
        "generationConfig": {"maxOutputTokens": 50},
    }
    body = json.dumps(data).encode()

    request = parse_request(body)

    assert request is not None
    assert (request.provider, request.model) == ("gemini", None)
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert [json.loads(body[m.begin : m.end]) for m in request.messages] == [system, *contents]
    assert request.messages[2].calls == [ToolCall(id=None, name="f", arguments='{"city":"Bern"}')]
    assert request.messages[3].results[0].call_id == "f"
    assert [t.name for t in request.tools] == ["f", "googleSearch"]
    assert request.max_output_tokens == 50
    assert request.problems == []


def test_snake_case_is_read_too() -> None:
    """The API takes both; hand-written requests often have it."""
    body = json.dumps(
        {
            "model": "models/gemini-2.5-pro",
            "contents": {"parts": {"text": "Hi"}},
            "system_instruction": {"parts": [{"text": "S"}]},
            "tools": [{"function_declarations": [{"name": "f"}]}],
        }
    )

    request = parse_request(body)

    assert request is not None
    assert request.model == "gemini-2.5-pro"
    assert [(m.role, m.text) for m in request.messages] == [("system", "S"), ("user", "Hi")]
    assert request.tools[0].name == "f"


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ([ASK, CALL], "contents[1]: tool call 'f' has no result in the next turn"),
        ([ASK, CALL, ASK], "contents[1]: tool call 'f' has no result in the next turn"),
        ([ASK, RESULT], "contents[1]: the result of 'f' does not directly follow a call"),
        (
            [ASK, CALL, {"role": "user", "parts": RESULT["parts"] * 2}],  # type: ignore[operator]
            "contents[2]: 2 tool results for 1 calls",
        ),
        ([ASK, ANSWER, CALL, RESULT], "contents[2]: a tool call must follow a user turn"),
        (
            [{"role": "assistant", "parts": [{"text": "x"}]}],
            "contents[0]: unknown role 'assistant'",
        ),
        ([{"role": "user", "parts": []}], "contents[0]: the content is empty"),
    ],
)
def test_a_history_that_the_provider_refuses(contents: list[Any], problem: str) -> None:
    """Each rule, planted."""
    problems = read(*contents).problems

    assert any(problem in p for p in problems), problems


def chunk(parts: list[Any], finish: str | None = None, **usage: int) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"}


LAST = chunk(
    CALL["parts"],  # type: ignore[arg-type]
    "STOP",
    promptTokenCount=100,
    cachedContentTokenCount=64,
    candidatesTokenCount=10,
    thoughtsTokenCount=5,
)


@pytest.mark.parametrize("form", ["sse", "array"])
def test_a_streamed_answer_is_put_together(form: str) -> None:
    """With `alt=sse` events, else one array; thoughts are not said, but they cost."""
    chunks = [chunk([{"text": "Hm", "thought": True}]), chunk([{"text": "Let me "}])]
    chunks += [chunk([{"text": "see."}]), LAST]
    text = "".join(f"data: {json.dumps(c)}\r\n\r\n" for c in chunks)

    response = parse_response(text if form == "sse" else json.dumps(chunks))

    assert response is not None
    assert (response.provider, response.model) == ("gemini", "gemini-2.5-flash")
    assert response.text == "Let me see."
    assert response.calls == [ToolCall(id=None, name="f", arguments='{"city":"Bern"}')]
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(input_tokens=100, output_tokens=15, cache_read_tokens=64)


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (chunk([{"text": "x"}], "STOP"), "stop"),
        (chunk([{"text": "x"}], "MAX_TOKENS"), "length"),
        (chunk([], "SAFETY"), "content_filter"),
        (chunk([], "MALFORMED_FUNCTION_CALL"), "error"),
        (chunk([], "LANGUAGE"), "other"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "content_filter"),
    ],
)
def test_finish_reasons_are_one_vocabulary(answer: Any, finish: str) -> None:
    response = parse_response(json.dumps(answer))

    assert response is not None
    assert response.finish_reason == finish


def test_an_error_keeps_the_providers_words() -> None:
    """Alone, or in an array, as a stream that failed at once."""
    error = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}
    for text in (json.dumps(error), json.dumps([error])):
        response = parse_response(text)

        assert response is not None
        assert (response.provider, response.finish_reason) == ("gemini", "error")
        assert response.error == "RESOURCE_EXHAUSTED: Quota"
