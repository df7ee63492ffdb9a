"""Any text may come: it is read, or nothing is; never an exception, never a wrong offset."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.limits import MIB
from vestige.providers.parsing import parse_request, parse_response
from vestige.providers.prompt_cache import cache_ttl_s, explain_change, fingerprint

KEYS = st.sampled_from(
    (
        "messages",
        "contents",
        "input",
        "role",
        "content",
        "parts",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "tool_call_id",
        "tools",
        "functions",
        "function_call",
        "system",
        "instructions",
        "cache_control",
        "tool_use_id",
        "functionCall",
        "functionResponse",
        "args",
        "response",
        "usage",
        "usageMetadata",
        "choices",
        "delta",
        "candidates",
        "output",
        "error",
        "message",
        "index",
        "item",
        "status",
        "call_id",
        "output_index",
        "event",
        "stop_reason",
        "finish_reason",
        "model",
        "tool_use",
        "tool_result",
        "input_schema",
        "functionDeclarations",
        "systemInstruction",
        "ttl",
    )
)
WORDS = st.sampled_from(
    (
        "user",
        "assistant",
        "system",
        "tool",
        "function",
        "model",
        "message",
        "text",
        "tool_use",
        "tool_result",
        "function_call",
        "function_call_output",
        "reasoning",
        "content_block_delta",
        "content_block_start",
        "message_start",
        "error",
        "message_delta",
        "response.output_item.added",
        "response.output_text.delta",
        "response",
        "a",
        "é",
        "1h",
    )
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text()
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": WORDS | JSON},
        optional=dict.fromkeys(("content", "tool_calls", "parts", "type"), JSON),
    ),
    max_size=4,
)
REQUESTS = st.fixed_dictionaries(
    {"model": WORDS},
    optional=dict.fromkeys(("messages", "contents", "input"), MESSAGES | JSON)
    | dict.fromkeys(("system", "tools", "functions", "instructions", "systemInstruction"), JSON),
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"type": WORDS},
        optional=dict.fromkeys(
            (
                *("choices", "candidates", "delta", "item", "index", "output_index", "usage"),
                *("error", "message", "content_block", "response", "output", "content", "object"),
            ),
            JSON,
        ),
    ),
    max_size=5,
)
HINTS = st.sampled_from([None, "openai", "anthropic", "gcp.gemini", "openai-responses", "what"])
FUZZ = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@given(st.text() | st.binary(), HINTS)
@FUZZ
def test_any_text_is_read_or_not(text: str | bytes, hint: str | None) -> None:
    parse_request(text, hint)
    parse_response(text, hint)


@pytest.mark.slow
@given(REQUESTS | JSON, HINTS, st.sampled_from([None, 1]))
@FUZZ
def test_any_json_is_a_request_or_not(data: Any, hint: str | None, indent: int | None) -> None:
    """Where offsets are given, they are those of a whole value, in order."""
    body = json.dumps(data, indent=indent, ensure_ascii=False).encode(errors="replace")

    request = parse_request(body, hint)

    if request is None:
        return
    for part in [*request.messages, *request.prompt]:
        if part.end:
            json.loads(body[part.begin : part.end])
    assert 0 <= request.prefix_end <= len(body)
    assert len(fingerprint(request, body)) == 16
    assert cache_ttl_s(request, body) >= 300
    assert explain_change(request, body, request, body) is None


@pytest.mark.slow
@given(EVENTS | JSON, HINTS)
@FUZZ
def test_any_json_is_an_answer_or_not(data: Any, hint: str | None) -> None:
    """Whole, as an array, and as events."""
    parse_response(json.dumps(data), hint)
    events = data if isinstance(data, list) else [data]
    for event in events:
        parse_response(json.dumps(event), hint)
    parse_response("".join(f"data: {json.dumps(event)}\n\n" for event in events), hint)


@pytest.mark.slow
@given(REQUESTS, REQUESTS)
@FUZZ
def test_any_two_requests_can_be_compared(a: Any, b: Any) -> None:
    bodies = [json.dumps(data).encode() for data in (a, b)]
    one, two = (parse_request(body) for body in bodies)
    if one and two:
        explain_change(one, bodies[0], two, bodies[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"messages": "hello"}',
        '{"messages": ["hello"]}',
        '{"level": "info", "message": "hello"}',
        '{"contents": "of a box"}',
        b"\xff\xfe",
        "\ud800",
        '{"messages":[{"role":"user"}],"x":' + "[" * 300 + "]" * 300 + "}",
        "[" * 100_000,
        '{"messages":[{"role":"user","content":"' + "x" * (16 * MIB) + '"}]}',
    ],
    ids=lambda text: str(text[:20]),
)
def test_what_is_no_request_is_none(text: str | bytes) -> None:
    """Also what is too deep or too long to look into."""
    assert parse_request(text) is None
    assert parse_response(text) is None


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (r'"content":"\ud83d","x":"\ude00"', "\ufffd"),
        (r'"content":"\ud83d\ude00 \\ud83d \udE00!"', "😀 \\ud83d \ufffd!"),
        (r'"content":"-Infinity NaN","logprob":-Infinity,"top":NaN', "-Infinity NaN"),
    ],
)
def test_an_answer_is_read_where_sdks_read_it(odd: str, text: str) -> None:
    """Python's decoder accepts half characters and NaN, so usage is still found."""
    answer = f'{{"choices":[{{"index":0,"message":{{{odd}}}}}],"usage":{{"prompt_tokens":5}}}}'
    for body in (answer, "data: " + answer.replace('"message"', '"delta"') + "\n\n"):
        assert json.loads(answer)
        response = parse_response(body)

        assert response is not None
        assert response.text == text
        assert response.usage.input_tokens == 5


def test_an_odd_text_with_a_million_quotes_is_looked_at_once() -> None:
    """In a string without an end each quote might begin another: a look from each would take
    hours.
    """
    assert parse_response('{"NaN":"' + '"\\' * MIB) is None


def test_a_request_with_half_a_character_is_read() -> None:
    """A program that cuts a text by UTF-16 units sends one."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a\ud83d"}]})

    request = parse_request(body)

    assert request is not None
    assert request.messages[0].text == "a\ufffd"


def test_a_body_with_a_repeated_key_has_no_offsets() -> None:
    """The decoder keeps one of the values; a walk over the text would point at another."""
    text = '{"model":"m","messages":[],"messages":[{"role":"user","content":"x"}]}'

    request = parse_request(text)

    assert request is not None
    assert [(m.begin, m.end) for m in request.messages] == [(0, 0)]
    assert request.prompt == []


CLAUDE = {"model": "claude-x", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("data", "hint", "provider"),
    [
        (CLAUDE, None, "anthropic"),
        (CLAUDE, "openai", "openai"),
        (CLAUDE | {"tools": [TOOL], "stream_options": {}}, "anthropic", "openai"),
        (CLAUDE | {"model": "gpt"}, None, "openai"),
        (CLAUDE | {"model": "gpt"}, "anthropic", "anthropic"),
        (CLAUDE | {"model": "gpt", "system": "S"}, None, "anthropic"),
        ({"anthropic_version": "bedrock-2023-05-31"} | CLAUDE, "aws.bedrock", "anthropic"),
    ],
)
def test_the_provider_is_known_by_shape(data: Any, hint: str | None, provider: str) -> None:
    """Claude may be served in OpenAI's words: the hint is only one sign."""
    request = parse_request(json.dumps(data), hint)

    assert request is not None
    assert request.provider == provider
