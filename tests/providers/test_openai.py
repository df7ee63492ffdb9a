"""Chat completions, as OpenAI and compatible servers speak them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.providers.chat_types import Request, ToolCall, ToolResult, Usage
from vestige.providers.parsing import parse_request, parse_response

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city, now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def user(text: str = "How warm is it in Zürich?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def asks(*ids: str, arguments: str = '{"city": "Zürich"}') -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def gives(call_id: str, text: str = "14 °C") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def read(*messages: dict[str, Any], **more: Any) -> Request:
    data = {"model": "gpt-4o", "messages": list(messages), "tools": [TOOL]} | more
    request = parse_request(json.dumps(data, ensure_ascii=False))
    assert request is not None
    return request


def test_a_request_is_read_with_the_place_of_each_message() -> None:
    """Offsets are bytes of the body, also behind characters of more than one byte."""
    messages = [
        {"role": "developer", "content": "Be brief. ✂"},
        {"role": "user", "content": [{"type": "text", "text": "Wie warm?"}]},
        asks("call_1"),
        gives("call_1"),
    ]
    data = {"messages": messages, "model": "gpt-4o", "max_completion_tokens": 99, "tools": [TOOL]}
    body = json.dumps(data, ensure_ascii=False, indent=1).encode()

    request = parse_request(body)

    assert request is not None
    assert (request.provider, request.model) == ("openai", "gpt-4o")
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert [m.text for m in request.messages] == ["Be brief. ✂", "Wie warm?", "", ""]
    assert [json.loads(body[m.begin : m.end]) for m in request.messages] == messages
    assert request.messages[2].calls == [
        ToolCall(id="call_1", name="get_weather", arguments='{"city": "Zürich"}')
    ]
    assert request.messages[3].results == [ToolResult(call_id="call_1", text="14 °C")]
    assert [t.name for t in request.tools] == ["get_weather"]
    assert request.tools[0].parameters == TOOL["function"]["parameters"]  # type: ignore[index]
    assert request.max_output_tokens == 99
    assert request.breakpoints == []
    assert request.prefix_end == request.messages[-1].end
    assert [p.path for p in request.prompt] == ["tools[0]", *(f"messages[{n}]" for n in range(4))]
    assert request.problems == []


def test_legacy_functions_are_tools() -> None:
    """`functions` and `function_call` have no ids: nothing to pair."""
    call = {"name": "f", "arguments": "{}"}
    request = read(
        user(),
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "f", "content": "1"},
        functions=[{"name": "f", "parameters": {"type": "object"}}],
        tools=None,
    )

    assert request.provider == "openai"
    assert [t.name for t in request.tools] == ["f"]
    assert request.messages[1].calls == [ToolCall(id=None, name="f", arguments="{}")]
    assert request.messages[2].results[0].text == "1"
    assert request.problems == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([user(), asks("a")], "messages[1]: tool call 'a' ('get_weather') has no result"),
        ([user(), gives("a")], "messages[1]: the result for 'a' has no call"),
        ([user(), gives("a"), asks("a")], "messages[1]: the result for 'a' comes before its call"),
        (
            [user(), asks("a"), gives("a"), gives("a")],
            "messages[3]: a second result for call 'a' (first in messages[2])",
        ),
        (
            [user(), asks("a"), user(), gives("a")],
            "messages[3]: the result for 'a' does not directly follow its call in messages[1]",
        ),
        (
            [user(), asks("a"), gives("a"), asks("a"), gives("a")],
            "messages[3]: call id 'a' is used twice (first in messages[1])",
        ),
        (
            [user(), asks("a", arguments='{"c'), gives("a")],
            "arguments of 'get_weather' are not JSON",
        ),
        ([user(), {"role": "bot", "content": "x"}], "messages[1]: unknown role 'bot'"),
        ([user(), {"role": "assistant", "content": None}], "messages[1]: the content is empty"),
        ([user("")], "messages[0]: the content is empty"),
        ([], "messages: there are none"),
    ],
)
def test_a_history_that_the_provider_refuses(messages: list[Any], problem: str) -> None:
    """Each rule, planted; the sentence names the message."""
    problems = read(*messages).problems

    assert any(problem in p for p in problems), problems


def test_two_calls_may_be_answered_in_any_order() -> None:
    """Results of one turn follow it in some order: that is allowed."""
    assert read(user(), asks("a", "b"), gives("b"), gives("a"), user()).problems == []


def test_a_whole_answer() -> None:
    """Cached tokens are part of the input."""
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": asks("call_9"), "finish_reason": "tool_calls"}],
        "usage": {
            "prompt_tokens": 2006,
            "completion_tokens": 30,
            "total_tokens": 2036,
            "prompt_tokens_details": {"cached_tokens": 1920},
        },
    }

    response = parse_response(json.dumps(answer))

    assert response is not None
    assert (response.provider, response.model) == ("openai", "gpt-4o-2024-08-06")
    assert response.calls[0].id == "call_9"
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(input_tokens=2006, output_tokens=30, cache_read_tokens=1920)


def sse(*chunks: Any, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + end


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "gpt-4o", "choices": [choice]}


def fragment(n: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": "f"} if more else {})
    return {"tool_calls": [{"index": n, "function": function} | more]}


def test_a_streamed_answer_is_put_together() -> None:
    """Calls come in fragments, identified by index; usage comes last, without choices."""
    text = sse(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Let me "}),
        chunk({"content": "see."}),
        chunk(fragment(0, "", id="c0")),
        chunk(fragment(0, '{"a":')),
        chunk(fragment(1, '{"b":2}', id="c1")),
        chunk(fragment(0, "1}")),
        chunk({}, "tool_calls"),
        {"model": "gpt-4o", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
    )

    response = parse_response(text)

    assert response is not None
    assert response.text == "Let me see."
    assert [(c.id, c.arguments) for c in response.calls] == [("c0", '{"a":1}'), ("c1", '{"b":2}')]
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(input_tokens=5, output_tokens=7)


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_calls_that_share_an_index_are_told_apart_by_their_ids(index: dict[str, int]) -> None:
    """Google's compatible endpoint gives every call the first index; other servers give none."""

    def call(arguments: str, **more: Any) -> dict[str, Any]:
        name = {"name": more.pop("name")} if more else {}
        return {"tool_calls": [{**index, **more, "function": {**name, "arguments": arguments}}]}

    text = sse(
        chunk(call('{"a":', id="c0", name="f")),
        chunk(call("1}")),
        chunk(call('{"b":', id="c1", name="f")),
        chunk(call("2", id="c1", name="f")),
        chunk(call("}")),
    )

    response = parse_response(text)

    assert response is not None
    assert [(c.id, c.arguments) for c in response.calls] == [("c0", '{"a":1}'), ("c1", '{"b":2}')]


@pytest.mark.parametrize(("total", "output"), [(331, 319), (14, 2), (None, 2)])
def test_reasoning_is_output_also_where_it_is_counted_beside_it(
    total: int | None, output: int
) -> None:
    """xAI's total is prompt, completion and reasoning; OpenAI's completion includes the
    reasoning.
    """
    usage = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": total}
    details = {"completion_tokens_details": {"reasoning_tokens": 317}}

    response = parse_response(json.dumps({"choices": [], "usage": usage | details}))

    assert response is not None
    assert response.usage.output_tokens == output


def test_a_cut_stream_gives_what_came() -> None:
    """No finish reason: it never finished."""
    text = sse(chunk({"content": "Half"}), end='data: {"choices":[{"del').replace("\n", "\r\n")

    response = parse_response(text.encode())

    assert response is not None
    assert (response.text, response.finish_reason) == ("Half", None)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "Too many", "type": "rate_limit", "code": "slow"}},
        {"object": "error", "message": "Too many", "type": "rate_limit", "code": 429},
    ],
)
def test_an_error_keeps_the_providers_words(error: dict[str, Any]) -> None:
    """OpenAI's error body, and that of vLLM."""
    response = parse_response(json.dumps(error))

    assert response is not None
    assert (response.provider, response.finish_reason) == ("openai", "error")
    assert response.error == "rate_limit: Too many"
