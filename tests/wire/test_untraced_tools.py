"""Tools of Python programs that nothing records: they are inferred from the next request."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import openai
import pytest

import vestige
from support.provider_answers import chat, chat_call
from support.provider_calls import spans_in
from support.provider_server import Server
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.record.run import SpanInfo
from vestige.store.sqlite.sqlite_store import SqliteStore

KEY = "sk-test-4711471147114711"


def search(q: str) -> str:
    return f"found {q}"


def run_agent(home: Home, tool: Any = search, around: str = "") -> list[SpanInfo]:
    """Run a loop of one tool call. Return the spans in the order of their records."""
    replies = [chat(calls=[chat_call("call_7", "search")]), chat()]
    with (
        vestige.capture_http(),
        Server(replies) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent") as run,
    ):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
        with run.child("around", around) if around else nullcontext():
            messages: list[Any] = [{"role": "user", "content": "find x"}]
            answer = client.chat.completions.create(model="m", messages=messages).choices[0]
            messages.append(answer.message)
            for call in answer.message.tool_calls or ():
                result = tool(**json.loads(call.function.arguments))  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            client.chat.completions.create(model="m", messages=messages)
    return sorted(spans_in(home).values(), key=lambda span: span.started_ns)


def test_a_tool_is_recorded_between_its_model_calls(home: Home) -> None:
    spans = [span for span in run_agent(home) if span.type in ("llm", "tool")]
    assert [span.type for span in spans] == ["llm", "tool", "llm"]
    tool = spans[1]
    assert tool.name == "search" and tool.attributes["inferred"] is True
    assert tool.attributes["tool_call_id"] == "call_7"
    assert tool.parent_id == spans[0].parent_id
    assert tool.input is not None and tool.output is not None


@pytest.mark.slow
def test_a_long_result_is_stored_once_and_shown_with_its_tool(home: Home) -> None:
    """The request that sends it has it already."""
    (tool,) = [
        span
        for span in run_agent(home, lambda q: "The page: " + "word " * 200)
        if span.type == "tool"
    ]
    assert tool.output is None and tool.attributes["tool_result.in_next_request"] is True
    with SqliteStore.open(home.store, readonly=True) as store:
        text = Debugger(store).transcript(tool.id).text()
    assert text.count("The page: word") == 1


def test_a_tool_that_is_recorded_itself_is_not_inferred(home: Home) -> None:
    (tool,) = [span for span in run_agent(home, vestige.tool(search)) if span.type == "tool"]
    assert "inferred" not in tool.attributes


@pytest.mark.parametrize("around", ["agent", "step"])
def test_nothing_is_inferred_inside_the_spans_of_a_framework(home: Home, around: str) -> None:
    assert "tool" not in {span.type for span in run_agent(home, around=around)}
