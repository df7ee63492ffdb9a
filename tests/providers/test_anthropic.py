"""Anthropic messages: blocks, breakpoints, and rules of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.providers.chat_types import Request, ToolCall, ToolResult, Usage
from vestige.providers.parsing import parse_request, parse_response

MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {
    "name": "look",
    "description": "Look.",
    "input_schema": {"type": "object", "properties": {}},
}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) or "Look around."}


def asks(*ids: str) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": i, "name": "look", "input": {"at": "é"}} for i in ids]
    return {"role": "assistant", "content": [text("I look."), *calls]}


def result(call_id: str, content: Any = "A door.", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def encode(messages: list[Any], **more: Any) -> bytes:
    """In the order of the SDK: what the provider reads first is last."""
    data = {"max_tokens": 99, "messages": messages, "model": "claude-sonnet-4-5"} | more
    return json.dumps(data, ensure_ascii=False).encode()


def read(*messages: Any, **more: Any) -> Request:
    request = parse_request(encode(list(messages), **more), "anthropic")
    assert request is not None
    assert request.provider == "anthropic"
    return request


def test_a_request_is_read_with_the_place_of_each_message() -> None:
    """The system prompt is the first message, wherever it is in the body."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iV"}}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "Eq"}
    call = asks("t1")
    call["content"].insert(0, thinking)
    messages = [
        user(text("Räum auf."), image),
        call,
        user(result("t1", [text("A"), text("B")], is_error=True), text("And now?")),
    ]
    system = [text("You are a robot."), text("Be brief.")]
    body = encode(messages, system=system, tools=[TOOL])

    request = parse_request(body)

    assert request is not None
    assert request.provider == "anthropic"
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[0].text == "You are a robot.\nBe brief."
    assert [m.text for m in request.messages[1:]] == ["Räum auf.", "I look.", "And now?"]
    assert [json.loads(body[m.begin : m.end]) for m in request.messages] == [system, *messages]
    assert request.messages[2].calls == [ToolCall(id="t1", name="look", arguments='{"at":"é"}')]
    assert request.messages[3].results == [ToolResult(call_id="t1", text="A\nB", is_error=True)]
    assert request.tools[0].parameters == TOOL["input_schema"]
    assert request.max_output_tokens == 99
    assert (request.breakpoints, request.prefix_end) == ([], 0)
    paths = ["tools[0]", "system", "messages[0]", "messages[1]", "messages[2]"]
    assert [p.path for p in request.prompt] == paths
    assert request.problems == []


def test_cache_control_anywhere_is_a_breakpoint() -> None:
    """On a tool, a system block, a block, a block inside a tool result; each ends its object."""
    tool = TOOL | MARK
    system = [text("You.", **MARK), text("Today is Monday.")]
    inner = result("t1", [text("A", **MARK)])
    last = text("Go.", **MARK)
    body = encode([user(), asks("t1"), user(inner, last)], system=system, tools=[tool])

    request = parse_request(body)

    assert request is not None
    for end, marked in zip(
        request.breakpoints, [tool, system[0], text("A", **MARK), last], strict=True
    ):
        assert body[:end].endswith(json.dumps(marked).encode())
    assert request.prefix_end == request.breakpoints[-1]


def test_cache_control_on_the_request_marks_the_last_message() -> None:
    request = read(user(), **MARK)

    assert request.breakpoints == [request.messages[-1].end]


def test_cache_control_in_arguments_or_schemas_is_somebodys_data() -> None:
    """A tool may well have a parameter of that name."""
    schema = {"type": "object", "properties": MARK}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": MARK}
    request = read(
        user(),
        {"role": "assistant", "content": [call]},
        user(result("t1")),
        tools=[TOOL | {"input_schema": schema}],
    )

    assert request.breakpoints == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([user(), asks("a")], "messages[1]: tool call 'a' ('look') has no result"),
        ([user(), asks("a"), user()], "messages[1]: tool call 'a' ('look') has no result"),
        ([user(result("a"))], "messages[0]: the result for 'a' has no call"),
        ([user(), asks("a"), user(result("a"), result("a"))], "messages[2]: a second result for"),
        (
            [user(), asks("a"), user(), asks("b"), user(result("b"), result("a"))],
            "messages[4]: the result for 'a' does not directly follow its call in messages[1]",
        ),
        ([user(), asks("a"), user(text("Hm"), result("a"))], "text comes before the tool results"),
        ([asks("a"), user(result("a"))], "messages[0]: the first message is not the user's"),
        ([user(), asks(), asks()], "messages[2]: a second assistant message in a row"),
        (
            [user(), {"role": "assistant", "content": ""}, user()],
            "messages[1]: the content is empty",
        ),
        ([user(text(" "))], "messages[0]: text block 0 is empty"),
        ([user(), {"role": "system", "content": "x"}], "messages[1]: unknown role 'system'"),
        ([user(), {"role": "assistant", "content": "It is "}], "prefill ends with whitespace"),
        (
            [user(), {"role": "assistant", "content": [asks("a")["content"][1] | {"input": "{"}]}],
            "messages[1]: the arguments of 'look' are not an object",
        ),
        ([user(result("a")) | {"role": "assistant"}], "a tool result in a message of role"),
    ],
)
def test_a_history_that_the_provider_refuses(messages: list[Any], problem: str) -> None:
    """Each rule, planted; the sentence names the message."""
    problems = read(*messages).problems

    assert any(problem in p for p in problems), problems


def test_an_empty_last_answer_or_two_messages_of_the_user_are_allowed() -> None:
    """A prefill may be empty, and the provider joins what the user says."""
    assert read(user(), user(), {"role": "assistant", "content": ""}).problems == []


USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 2000,
    "output_tokens": 34,
}
TOTAL = Usage(input_tokens=2112, output_tokens=34, cache_read_tokens=2000, cache_write_tokens=100)


def test_a_whole_answer() -> None:
    """Input is all input: what was read from the cache and written to it included."""
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": asks("t9")["content"],
        "stop_reason": "tool_use",
        "usage": USAGE,
    }

    response = parse_response(json.dumps(answer))

    assert response is not None
    assert (response.provider, response.text) == ("anthropic", "I look.")
    assert response.calls == [ToolCall(id="t9", name="look", arguments='{"at":"é"}')]
    assert response.finish_reason == "tool_calls"
    assert response.usage == TOTAL


def sse(*events: Any) -> str:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)


def delta(index: int, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": more}


def start(index: int, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


MESSAGE = {
    "type": "message",
    "model": "claude-x",
    "content": [],
    "usage": USAGE | {"output_tokens": 1},
}
STREAM: list[dict[str, Any]] = [
    {"type": "message_start", "message": MESSAGE},
    start(0, {"type": "thinking", "thinking": ""}),
    delta(0, type="thinking_delta", thinking="Hm"),
    start(1, text("")),
    {"type": "ping"},
    delta(1, type="text_delta", text="I "),
    delta(1, type="text_delta", text="look."),
    start(2, {"type": "tool_use", "id": "t9", "name": "look", "input": {}}),
    delta(2, type="input_json_delta", partial_json=""),
    delta(2, type="input_json_delta", partial_json='{"at":'),
    delta(2, type="input_json_delta", partial_json=' "x"}'),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 34, "input_tokens": None},
    },
    {"type": "message_stop"},
]


def test_a_streamed_answer_is_put_together() -> None:
    """Arguments are kept as the provider wrote them; usage of the end replaces that of the
    start.
    """
    response = parse_response(sse(*STREAM))

    assert response is not None
    assert (response.model, response.text) == ("claude-x", "I look.")
    assert response.calls == [ToolCall(id="t9", name="look", arguments='{"at": "x"}')]
    assert response.finish_reason == "tool_calls"
    assert response.usage == TOTAL


def test_an_error_keeps_the_providers_words() -> None:
    """As a body, or in the middle of a stream."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    complete, streamed = parse_response(json.dumps(error)), parse_response(sse(*STREAM[:6], error))

    assert complete is not None and streamed is not None
    assert complete.provider == streamed.provider == "anthropic"
    assert complete.error == streamed.error == "overloaded_error: Overloaded"
    assert (streamed.text, streamed.finish_reason) == ("I ", "error")
