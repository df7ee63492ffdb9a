"""Bedrock Converse: blocks, streams of events and exceptions; also as Strands records it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.providers.chat_types import Request, Response, ToolCall, ToolResult, ToolSchema, Usage
from vestige.providers.parsing import parse_request, parse_response

CALL = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": "door"}}}


def result(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": "t1", "content": list(content), **more}}


def parse(*messages: dict[str, Any], hint: str | None = "bedrock", **more: Any) -> Request:
    request = parse_request(json.dumps({"messages": list(messages), **more}), hint)
    assert request is not None
    assert request.provider == "bedrock"
    return request


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def answer(data: object, hint: str | None = "bedrock") -> Response:
    response = parse_response(data if isinstance(data, str) else json.dumps(data), hint)
    assert response is not None
    return response


def events(*pairs: tuple[str, dict[str, Any]]) -> str:
    return "".join(
        f"event: {name}\ndata: {json.dumps({name: fields})}\n\n" for name, fields in pairs
    )


def delta(index: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": fields}


@pytest.mark.parametrize("hint", ["bedrock", None, "openai"])
def test_a_request_has_system_tools_calls_and_results(hint: str | None) -> None:
    """Known by its blocks, whatever the hint: Strands records the same messages elsewhere."""
    spec = {"name": "look", "inputSchema": {"json": {"type": "object"}}}
    request = parse(
        user({"text": "Look."}),
        assistant({"text": "I look."}, CALL),
        user(result({"text": "A door."}, {"json": {"n": 1}})),
        system=[{"text": "Be brief."}],
        toolConfig={"tools": [{"toolSpec": spec}]},
        inferenceConfig={"maxTokens": 9},
        hint=hint,
    )

    system, question, call, answered = request.messages
    assert (system.role, system.text, question.text) == ("system", "Be brief.", "Look.")
    assert call.calls == [ToolCall(id="t1", name="look", arguments='{"at":"door"}')]
    assert answered.role == "tool"
    assert answered.results == [ToolResult(call_id="t1", text='A door.\n{"n":1}')]
    size = len(json.dumps(spec, separators=(",", ":")))
    schema = ToolSchema(name="look", parameters={"type": "object"}, size_bytes=size)
    assert request.tools == [schema]
    assert (request.max_output_tokens, request.problems) == (9, [])
    assert [part.path for part in request.prompt][:2] == ["toolConfig", "system"]


def test_media_thinking_and_failed_results_are_kept() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    document = {"document": {"format": "pdf", "name": "Report", "source": {"bytes": "JVBERi0="}}}
    thinking = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
    hidden = {"reasoningContent": {"redactedContent": "eHh4"}}
    request = parse(
        user(image, document),
        assistant(thinking, hidden, CALL),
        user(result({"text": "no"}, image, status="error")),
    )

    question, call, failed = request.messages
    assert [(p.kind, p.mime_type) for p in question.parts] == [
        ("image", "image/png"),
        ("file", "application/pdf"),
    ]
    assert (question.parts[1].name, question.parts[0].size_bytes) == ("Report", 8)
    assert [part.kind for part in call.parts] == ["thinking", "thinking", "tool_call"]
    assert (call.parts[0].text, call.parts[1].is_redacted) == ("Hm.", True)
    assert failed.results[0].is_error
    assert failed.results[0].parts[0].kind == "image"


def test_rules_of_the_provider_are_checked() -> None:
    request = parse(user({"text": "Look."}), assistant(CALL), user({"text": "And?"}))

    assert any("'t1'" in problem and "no result" in problem for problem in request.problems)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "content_filter"),
        ("new_reason", "other"),
    ],
)
def test_an_answer_has_text_calls_usage_and_finish_reason(reason: str, word: str) -> None:
    """Cached tokens are part of the input, as with every provider."""
    usage = {"inputTokens": 5, "outputTokens": 7, "cacheReadInputTokens": 100}
    response = answer(
        {
            "output": {"message": assistant({"text": "I look."}, CALL)},
            "stopReason": reason,
            "usage": {**usage, "cacheWriteInputTokens": 10, "totalTokens": 122},
        },
        None,
    )

    assert (response.text, response.finish_reason) == ("I look.", word)
    assert response.calls == [ToolCall(id="t1", name="look", arguments='{"at":"door"}')]
    assert response.usage == Usage(
        input_tokens=115, output_tokens=7, cache_read_tokens=100, cache_write_tokens=10
    )


def test_a_stream_is_assembled() -> None:
    response = answer(
        events(
            ("messageStart", {"role": "assistant"}),
            delta(0, reasoningContent={"text": "H"}),
            delta(0, reasoningContent={"text": "m."}),
            delta(0, reasoningContent={"signature": "s"}),
            delta(1, text="I "),
            delta(1, text="look."),
            (
                "contentBlockStart",
                {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t1", "name": "look"}}},
            ),
            delta(2, toolUse={"input": '{"at":'}),
            delta(2, toolUse={"input": '"door"}'}),
            ("contentBlockStop", {"contentBlockIndex": 2}),
            ("messageStop", {"stopReason": "tool_use"}),
            ("metadata", {"usage": {"inputTokens": 5, "outputTokens": 7}}),
        )
    )

    assert (response.text, response.finish_reason) == ("I look.", "tool_calls")
    assert [(p.kind, p.text) for p in response.parts] == [
        ("thinking", "Hm."),
        ("text", "I look."),
        ("tool_call", '{"at":"door"}'),
    ]
    assert response.calls == [ToolCall(id="t1", name="look", arguments='{"at":"door"}')]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 7)


def test_a_stream_that_ends_early_has_no_finish_reason() -> None:
    response = answer(events(("messageStart", {}), delta(0, text="I lo")))

    assert (response.text, response.finish_reason) == ("I lo", None)


def test_exceptions_are_errors() -> None:
    streamed = answer(
        events(delta(0, text="I"), ("throttlingException", {"message": "Too many requests"}))
    )
    body = answer({"message": "The model is not ready."})

    assert streamed.error == "throttlingException: Too many requests"
    assert (streamed.text, streamed.finish_reason) == ("I", "error")
    assert (body.error, body.finish_reason) == ("The model is not ready.", "error")
