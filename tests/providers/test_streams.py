"""The first output of a stream of every provider; options of requests; Ollama's own answers."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from vestige.limits import MIB
from vestige.providers.parsing import parse_request, parse_response
from vestige.providers.request_options import read_options
from vestige.providers.stream_timing import drop_deltas, find_first, has_ended


def events(*data: Any) -> list[bytes]:
    return [f"data: {json.dumps(event)}\n\n".encode() for event in data]


def block(kind: str, **delta: str) -> dict[str, Any]:
    return {"type": kind, "delta": delta}


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def part(**part: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [part]}}]}


@pytest.mark.parametrize(
    ("parts", "first", "answer", "thought"),
    [
        (events(chunk(role="assistant", content=""), chunk(content="Hi")), 1, 1, False),
        (events(chunk(content=""), chunk(reasoning_content="Hm"), chunk(content="Hi")), 1, 2, True),
        (events(chunk(tool_calls=[{"index": 0}])), 0, 0, False),
        (
            events(
                {"type": "message_start"},
                block("content_block_delta", type="thinking_delta"),
                block("content_block_delta", type="text_delta"),
            ),
            1,
            2,
            True,
        ),
        (
            events(
                {"type": "response.created"},
                {"type": "response.reasoning_summary_text.delta"},
                {"type": "response.output_text.delta"},
            ),
            1,
            2,
            True,
        ),
        (events(part(text="Hm", thought=True), part(text="Hi")), 0, 1, True),
        (
            [
                b'{"message": {"content": ""}, "done": false}\n',
                b'{"message": {"content": "Hi"}, "done": false}\n',
            ],
            1,
            1,
            False,
        ),
        (events(chunk(reasoning="Hm")), 0, None, True),
    ],
)
def test_the_first_sign_of_a_model_is_found(
    parts: list[bytes], first: int, answer: int | None, thought: bool
) -> None:
    """A thought or a word; offsets lie in the event that carries it."""
    found = find_first(b"".join(parts))
    starts = [sum(map(len, parts[:n])) for n in range(len(parts) + 1)]

    assert found is not None
    assert starts[first] < found.token <= starts[first + 1]
    assert found.thought is thought
    if answer is None:
        assert found.answer is None
    else:
        assert found.answer is not None
        assert starts[answer] < found.answer <= starts[answer + 1]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"data: {", b"\xff\xfe"])
def test_what_is_no_stream_has_no_first_token(body: bytes) -> None:
    """Nor does what is cut before it."""
    assert find_first(body) is None


def test_an_event_of_a_million_empty_arrays_is_not_looked_into() -> None:
    """It would take a multiple of its size, in the thread of the program that reads the stream."""
    body = b'data: {"choices": [' + b"[]," * MIB + b"[]]}\n\n"
    tracemalloc.start()
    try:
        first = find_first(body + b"".join(events(chunk(content="Hi"))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert first is not None
    assert first.token > len(body)
    assert peak < 4 * len(body)


def test_a_stream_has_ended_when_it_says_so() -> None:
    """Not when its bytes stop."""
    assert has_ended(b"data: {}\n\ndata: [DONE]\n\n")
    assert has_ended(b'event: message_stop\ndata: {"type": "message_stop"}\n\n')
    assert not has_ended(b"data: {}\n\n")


def test_a_stream_has_ended_also_if_its_last_event_is_long() -> None:
    """The last event of Responses repeats instructions and tools; half of it is not an end."""
    last = {"type": "response.completed", "response": {"instructions": "event: x " * 5_000}}
    body = b"".join(
        [b"event: response.created\n", *events({}), b"event: response.completed\n", *events(last)]
    )

    assert has_ended(body)
    assert has_ended(body.replace(b"\n", b"\r\n"))
    assert not has_ended(body[:-5_000])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_thin_stream_tells_all_but_its_text(newline: str) -> None:
    """How it ended, what it cost, what it asked for."""
    call = {"index": 0, "id": "call_7", "function": {"name": "search", "arguments": "{}"}}
    parts = [
        *events({"model": "m", **chunk(role="assistant", content="")}),
        *events(*[chunk(content="word")] * 500),
        *events(chunk(tool_calls=[call])),
        *events(*[chunk(content="word")] * 500),
        *events({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        *events({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1000}}),
        b"data: [DONE]\n\n",
    ]
    body = b"".join(parts).replace(b"\n", newline.encode())
    complete, thin = parse_response(body), parse_response(drop_deltas(body))

    assert complete is not None and thin is not None
    assert (thin.model, thin.finish_reason, thin.usage, thin.calls) == (
        complete.model,
        complete.finish_reason,
        complete.usage,
        complete.calls,
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("words_after", [0, 1, 2, 3])
def test_a_thin_stream_tells_nothing_twice(words_after: int, newline: str) -> None:
    """The events at its end are kept once, whichever of them tell something."""
    call = {"functionCall": {"name": "search", "args": {"q": "x"}}}
    parts = [*[part(text="word")] * 200, part(**call), *[part(text="word")] * words_after]
    body = b"".join(events(*parts)).replace(b"\n", newline.encode())
    thin_body = drop_deltas(body)
    thin = parse_response(thin_body)

    assert thin is not None
    assert len(thin.calls) == 1
    assert thin_body.count(b"functionCall") == 1


def test_a_thin_stream_keeps_the_last_of_what_every_event_tells() -> None:
    """Gemini counts tokens in every event: one is enough."""
    part = {"candidates": [{"content": {"role": "model", "parts": [{"text": "word"}]}}]}
    counted = [{**part, "usageMetadata": {"candidatesTokenCount": n}} for n in range(500)]
    last = {"candidates": [{"finishReason": "STOP"}], "modelVersion": "g"}
    body = b"".join(events(*counted, *[last] * 4))
    complete, thin = parse_response(body), parse_response(drop_deltas(body))

    assert complete is not None and thin is not None
    assert (thin.usage, thin.finish_reason, thin.model) == (complete.usage, "stop", "g")
    assert complete.usage.output_tokens == 499
    assert len(drop_deltas(body)) < len(body) / 50


def test_options_are_read_without_the_messages() -> None:
    """The limit of an answer has one name."""
    body = {
        "model": "m",
        "messages": [{"role": "user"}],
        "temperature": 0.5,
        "stream": True,
        "max_completion_tokens": 7,
        "reasoning": {"effort": "low"},
        "tool_choice": {"type": "auto"},
    }

    assert read_options(json.dumps(body).encode()) == {
        "model": "m",
        "stream": True,
        "temperature": 0.5,
        "max_tokens": 7,
        "tool_choice.type": "auto",
        "reasoning.effort": "low",
    }
    assert read_options(b'{"generationConfig": {"maxOutputTokens": 9}}') == {"max_tokens": 9}
    assert read_options(b'{"options": {"num_predict": 9}}') == {"max_tokens": 9}
    assert read_options(b"[1]") == read_options(b"no json") == {}


def test_ollamas_own_api_is_read() -> None:
    """One object a line; the last has the counts."""
    request = b'{"model": "llama3", "messages": [{"role": "user", "content": "hi"}]}'
    call = {"function": {"name": "search", "arguments": {"q": "x"}}}
    lines = [
        {"model": "llama3", "message": {"role": "assistant", "content": "He"}, "done": False},
        {"model": "llama3", "message": {"content": "y", "tool_calls": [call]}, "done": False},
        {
            "model": "llama3",
            "message": {"content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 11,
            "eval_count": 3,
        },
    ]
    parsed = parse_request(request)
    streamed = parse_response("\n".join(map(json.dumps, lines)) + "\n")
    complete = parse_response(json.dumps(lines[2]), "ollama")

    assert parsed is not None and parsed.model == "llama3"
    assert streamed is not None and complete is not None
    assert (streamed.text, streamed.finish_reason) == ("Hey", "tool_calls")
    assert (streamed.calls[0].name, streamed.calls[0].arguments) == ("search", '{"q":"x"}')
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (11, 3)
    assert (complete.finish_reason, complete.usage.output_tokens) == ("stop", 3)
