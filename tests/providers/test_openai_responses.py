"""The Responses API: items instead of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.providers.chat_types import Request, ToolCall, Usage
from vestige.providers.parsing import parse_request, parse_response

ASK = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Warm?"}]}
THINK = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "14 °C"}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Fourteen.", "annotations": []}],
}


def read(input_: Any, **more: Any) -> Request:
    request = parse_request(json.dumps({"model": "gpt-5", "input": input_} | more))
    assert request is not None
    assert request.provider == "openai-responses"
    return request


def test_a_request_is_read_with_the_place_of_each_item() -> None:
    """Instructions come first, whatever the order of the body; tools are flat."""
    items = [ASK, THINK, CALL, RESULT]
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}]
    data = {"input": items, "model": "gpt-5", "instructions": "Be brief.", "tools": tools}
    body = json.dumps(data).encode()

    request = parse_request(body)

    assert request is not None
    roles = [m.role for m in request.messages]
    assert roles == ["system", "user", "assistant", "assistant", "tool"]
    assert [m.text for m in request.messages] == ["Be brief.", "Warm?", "Hm.", "", ""]
    slices = [json.loads(body[m.begin : m.end]) for m in request.messages]
    assert slices == ["Be brief.", *items]
    assert request.messages[3].calls == [ToolCall(id="c1", name="f", arguments="{}")]
    assert request.messages[4].results[0].text == "14 °C"
    assert request.tools[0].name == "f"
    assert request.tools[0].size_bytes == len(json.dumps(tools[0]))
    assert request.problems == []


def test_input_may_be_a_string() -> None:
    """A string is one message of the user."""
    body = json.dumps({"model": "gpt-5", "input": "Hello", "max_output_tokens": 5}).encode()

    request = parse_request(body)

    assert request is not None
    (message,) = request.messages
    assert (message.role, message.text) == ("user", "Hello")
    assert body[message.begin : message.end] == b'"Hello"'
    assert request.max_output_tokens == 5


@pytest.mark.parametrize(
    "data",
    [
        {"model": "text-embedding-3-small", "input": "Hello"},
        {"model": "some", "input": ["Hello", "you"]},
        {"model": "gpt-4o-mini-tts", "input": "Hello", "voice": "alloy"},
        {"input": "Hello"},
    ],
)
def test_other_requests_with_input_are_not_taken_for_it(data: Any) -> None:
    """Embeddings and speech have an `input` too."""
    assert parse_request(json.dumps(data)) is None


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([ASK, CALL], "input[1]: tool call 'c1' ('f') has no result"),
        ([ASK, RESULT], "input[1]: the result for 'c1' has no call"),
        ([ASK, CALL, RESULT, RESULT], "input[3]: a second result for call 'c1'"),
        ([ASK, CALL | {"arguments": "{"}, RESULT], "input[1]: the arguments of 'f' are not JSON"),
        ([ASK | {"role": "bot"}], "input[0]: unknown role 'bot'"),
        ([ASK | {"content": []}], "input[0]: the content is empty"),
        ([], "input: there is none"),
    ],
)
def test_a_history_that_the_provider_refuses(items: Any, problem: str) -> None:
    """Each rule, planted."""
    problems = read(items).problems

    assert any(problem in p for p in problems), problems


def test_a_result_may_answer_a_call_that_the_provider_keeps() -> None:
    """With `previous_response_id` the call is not in this request."""
    assert read([RESULT], previous_response_id="resp_1").problems == []


COMPLETE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-5-2025-08-07",
    "output": [THINK, ANSWER, CALL],
    "error": None,
    "usage": {
        "input_tokens": 300,
        "input_tokens_details": {"cached_tokens": 256},
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 30},
    },
}


def test_a_whole_answer() -> None:
    """A completed answer with calls asks for tools; reasoning is not said."""
    response = parse_response(json.dumps(COMPLETE))

    assert response is not None
    assert (response.text, response.calls[0].name) == ("Fourteen.", "f")
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(input_tokens=300, output_tokens=40, cache_read_tokens=256)


def test_an_incomplete_answer_was_cut_by_length() -> None:
    cut = COMPLETE | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    response = parse_response(json.dumps(cut))

    assert response is not None
    assert response.finish_reason == "length"


EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": COMPLETE | {"status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": ANSWER | {"content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Four"},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "teen."},
    {"type": "response.output_item.added", "output_index": 1, "item": CALL | {"arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '":1}'},
]


def sse(events: list[dict[str, Any]]) -> str:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)


def test_a_cut_stream_gives_what_came() -> None:
    """Deltas are joined where the last event, which has it all, is missing."""
    response = parse_response(sse(EVENTS))

    assert response is not None
    assert response.text == "Fourteen."
    assert response.calls == [ToolCall(id="c1", name="f", arguments='{"a":1}')]
    assert response.finish_reason is None


def test_a_finished_stream_is_read_from_its_last_event() -> None:
    complete = parse_response(json.dumps(COMPLETE))

    assert (
        parse_response(sse([*EVENTS, {"type": "response.completed", "response": COMPLETE}]))
        == complete
    )


def test_a_failed_stream_keeps_the_providers_words() -> None:
    failed = COMPLETE | {
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "Overloaded"},
    }
    one = parse_response(sse([EVENTS[0], {"type": "response.failed", "response": failed}]))
    other = parse_response(
        sse([EVENTS[0], {"type": "error", "code": "x", "message": "Overloaded"}])
    )

    assert one is not None and other is not None
    assert (one.finish_reason, one.error) == ("error", "server_error: Overloaded")
    assert (other.finish_reason, other.error) == ("error", "x: Overloaded")
