"""Answers that are cut, empty or filtered; results that fill or repeat."""

from __future__ import annotations

from typing import Any

import pytest

from support.llm_evidence import Agent, anthropic_answer, anthropic_request, findings, openai_answer
from vestige.home import Home
from vestige.query.checks.model import output
from vestige.query.checks.tools import soft_errors

ASK = {
    "model": "gpt-5",
    "max_completion_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
}


def test_an_answer_cut_by_its_length_is_told_with_its_limit(home: Home) -> None:
    agent = Agent(home)
    first = agent.call(ASK, openai_answer("And so", "length"), provider="openai")
    agent.call(ASK, openai_answer("And then", "length"), provider="openai")
    agent.call(ASK, openai_answer(), provider="openai")
    agent.done()

    (found,) = findings(home, output.output_cut)

    assert (found.kind, found.severity, found.cause) == ("output/cut", "warning", first.id)
    assert "max 5" in found.message and "2 calls" in found.message


def test_a_cut_inside_a_tool_call_is_an_error(home: Home) -> None:
    """The call that was asked for is not the one that was meant."""
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"text":"a'}}
    ]
    agent = Agent(home)
    agent.call(ASK, openai_answer(None, "length", tool_calls=calls), provider="openai")
    agent.done()

    (found,) = findings(home, output.output_cut)

    assert (found.kind, found.severity) == ("output/cut-tool-call", "error")


def test_the_attribute_alone_tells_a_cut(home: Home) -> None:
    agent = Agent(home)
    agent.call(ASK, None, finish_reason="MAX_TOKENS", output_tokens=4096)
    agent.call(ASK, None, finish_reason="max_tokens", warm=True)
    agent.done()

    (found,) = findings(home, output.output_cut)

    assert "4,096 tokens" in found.message


@pytest.mark.parametrize(
    ("last", "cut"),
    [
        ("", True),
        ('data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n', False),
        ("data: [DONE]\n\n", False),
    ],
)
def test_a_stream_that_stops_without_its_end_may_be_cut(home: Home, last: str, cut: bool) -> None:
    """A proxy that closes too early: the SDK gives the half answer as if it were whole."""
    event = (
        'data: {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "So "}}]}\n\n'
    )
    agent = Agent(home)
    agent.call({**ASK, "stream": True}, event * 3 + last, provider="openai", stream=True)
    agent.done()

    found = findings(home, output.output_cut)

    assert [each.kind for each in found] == (["output/unfinished"] if cut else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "empty"),
    [
        (openai_answer(""), True),
        (openai_answer(None), True),
        (anthropic_answer(""), True),
        ("", True),
        (openai_answer("x"), False),
        (openai_answer("", "length"), False),
        (openai_answer("", "content_filter"), False),
        ({"error": {"message": "no"}}, False),
        ("plain text", False),
        (None, False),
    ],
)
def test_an_answer_without_text_or_call_is_empty(home: Home, answer: Any, empty: bool) -> None:
    agent = Agent(home)
    span = agent.call(
        ASK, answer, provider="anthropic" if "content" in (answer or {}) else "openai"
    )
    agent.done()

    found = findings(home, output.empty_response)

    assert [f.cause for f in found] == ([span.id] if empty else [])


def test_a_filter_is_told(home: Home) -> None:
    agent = Agent(home)
    agent.call(ASK, openai_answer("", "content_filter"), provider="openai")
    agent.done()

    (found,) = findings(home, output.content_filter)

    assert found.kind == "output/content-filter"


def _with_results(*texts: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "read it"}]
    for n, text in enumerate(texts):
        use = {"type": "tool_use", "id": f"call_{n}", "name": "read", "input": {"n": n}}
        result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": text}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return anthropic_request(messages)


def test_one_result_that_fills_the_prompt_is_blamed_on_its_tool(home: Home) -> None:
    """Once, however many calls resend it."""
    agent = Agent(home)
    tool = agent.tool("read", "x" * 60_000, "call_0")
    first = agent.call(_with_results("x" * 60_000), anthropic_answer())
    agent.call(_with_results("x" * 60_000, "y"), anthropic_answer())
    agent.done()

    (found,) = findings(home, output.oversized_result)

    assert (found.cause, found.evidence) == (tool.id, [first.id, tool.id])
    assert "60,000 bytes" in found.message and "in 2 calls" in found.message


def test_many_middling_results_are_not_oversized(home: Home) -> None:
    agent = Agent(home)
    agent.call(_with_results(*[str(n) * 51_000 for n in range(5)]), anthropic_answer())
    agent.call(_with_results("x" * 40_000), anthropic_answer())
    agent.done()

    assert findings(home, output.oversized_result) == []


def test_the_same_block_twice_in_one_prompt_is_told_once(home: Home) -> None:
    page = "line of a page\n" * 400
    agent = Agent(home)
    tools = [agent.tool("read", page, f"call_{n}") for n in range(2)]
    call = agent.call(_with_results(page, page), anthropic_answer())
    agent.call(_with_results(page, page, "more"), anthropic_answer())
    agent.call(_with_results(page, page + "!"), anthropic_answer())
    agent.done()

    (found,) = findings(home, output.repeated_result)

    assert (found.cause, found.evidence) == (call.id, [call.id, *(tool.id for tool in tools)])


@pytest.mark.parametrize(
    ("text", "soft"),
    [
        ("Error: no such table", True),
        ("ValueError: bad", True),
        ("Traceback (most recent call last):\n  ...", True),
        ('{"error": "quota"}', True),
        ('{"success": false, "data": null}', True),
        ('{"exit_code": 2, "stdout": ""}', True),
        ("File /tmp/x not found", True),
        ("bash: foo: command not found", True),
        ("An error occurred while running the tool. Please try again. Error: 503", True),
        ("Error executing tool: 503 from rates.internal", True),
        ("Error executing tool 'rate' with arguments {}: 503", True),
        ("Error executing tool rate", True),
        ("Execution error in rate: 503", True),
        ("Tool error: 503", True),
        ("Error: ConnectionError - 503", True),
        ("1 validation error: city missing\n\nFix the errors and try again.", True),
        ('{"status": "error", "error_message": "503"}', True),
        ('{"error_type": "ConnectionError", "error_details": "503", "retry_count": 1}', True),
        ('{"error_type": null, "error_message": null, "rate": 1.1}', False),
        ('{"status": "failed"}', True),
        ('{"status": "ok", "errors": []}', False),
        ('{"status": "shipped"}', False),
        ('{"error": null, "ok": true}', False),
        ("The error rate fell by 3 %.", False),
        ("Errors and how to avoid them", False),
        ("0 failed, 12 passed", False),
        ("", False),
    ],
)
def test_soft_errors(text: str, soft: bool) -> None:
    assert bool(soft_errors.find_soft_error(text)) is soft


def test_a_soft_error_is_a_hint_told_once_for_each_tool(home: Home) -> None:
    agent = Agent(home)
    first = agent.tool("fetch", "Error: 503", "a")
    agent.tool("fetch", "Error: 503", "b")
    agent.tool("read", "fine", "c")
    agent.done()

    (found,) = findings(home, soft_errors.soft_error)

    assert (found.severity, found.basis, found.cause) == ("hint", "hypothesis", first.id)
    assert "2 times" in found.message


def test_a_failed_tool_is_found_in_every_conversation_of_a_process(home: Home) -> None:
    agent = Agent(home)
    firsts = []
    for order, text in (("5001", "Error executing tool: 503"), ("5002", "shipped")):
        use = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"order": order}}
        made = {**anthropic_answer(""), "content": [use], "stop_reason": "tool_use"}
        history = [
            {"role": "user", "content": f"refund {order}"},
            {"role": "assistant", "content": [use]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": text}],
            },
        ]
        firsts.append(agent.call(anthropic_request(history[:1]), made))
        agent.call(anthropic_request(history), anthropic_answer())
    agent.done()

    (found,) = findings(home, soft_errors.soft_error)

    assert (found.cause, found.severity) == (firsts[0].id, "warning")


@pytest.mark.parametrize("result", [{"content": "Error: 503"}, {"content": "x", "is_error": True}])
def test_where_no_tools_are_recorded_a_result_that_says_error_is_told(
    home: Home, result: dict[str, Any]
) -> None:
    """All that a program with no line of ours shows of its tools is what it sends to the model."""
    use = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {}}
    made = {**anthropic_answer(""), "content": [use], "stop_reason": "tool_use"}
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **result}]},
    ]
    agent = Agent(home)
    first = agent.call(anthropic_request(history[:1]), made)
    agent.call(anthropic_request(history), anthropic_answer())
    agent.call(anthropic_request(history), anthropic_answer())
    agent.done()

    (found,) = findings(home, soft_errors.soft_error)

    assert found.command is not None and found.command.endswith(" --in")  # the result is there
    assert (found.kind, found.cause) == ("tool/soft-error", first.id)
    assert found.message.startswith("fetch returned an error as its result: ")
