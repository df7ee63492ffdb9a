"""Tools and sub-agents of programs of which only the model calls are seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from vestige.providers.parsing import parse_response
from vestige.record.types import SpanClose, SpanOpen
from vestige.testing import FakeRecorder
from vestige.wire.inferred_tools import InferredTools
from vestige.wire.outgoing_request import SpanContext

Json = dict[str, Any]


@pytest.fixture
def program() -> Iterator[Program]:
    recorder = FakeRecorder()
    yield Program(recorder)
    recorder.close()


class Program:
    """A program that calls a model, as the proxy sees it."""

    def __init__(self, recorder: FakeRecorder, name: str = "") -> None:
        self.recorder = recorder
        self.run = recorder.run("program")
        self.tools = InferredTools()
        self.context = SpanContext(
            self.run._emitter, self.run.run_id, self.run.id, "agent", self.tools, name
        )

    def call(self, request: Json, response: Json) -> None:
        conversation = self.tools.begin_request(self.context, json.dumps(request).encode(), None)
        assert conversation is not None
        span = self.run.child("model", "llm")
        span.parent_id = conversation.place
        span.end()
        parsed = parse_response(json.dumps(response))
        assert parsed is not None
        self.tools.end_response(conversation, span, parsed)

    def opened(self, *types: str) -> list[SpanOpen]:
        records = [each for each in self.recorder.records if isinstance(each, SpanOpen)]
        return [each for each in records if each.type in types]

    def closed(self, span: SpanOpen) -> SpanClose | None:
        closes = (each for each in self.recorder.records if isinstance(each, SpanClose))
        return next((each for each in closes if each.span_id == span.span_id), None)


def ask(*messages: Json, system: str = "You help.") -> Json:
    return {"model": "claude", "max_tokens": 9, "system": system, "messages": list(messages)}


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def use(call_id: str, name: str, **arguments: str) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, text: str, *, failed: bool = False) -> Json:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed}
    return {"role": "user", "content": [block]}


def answer(*blocks: Json) -> Json:
    reason = "tool_use" if blocks else "end_turn"
    content = list(blocks) or [{"type": "text", "text": "Done."}]
    return {
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": content,
        "stop_reason": reason,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def test_a_tool_runs_from_the_response_to_the_request_with_its_result(program: Program) -> None:
    read, bash = use("t1", "Read", path="a.py"), use("t2", "Bash", command="ls")
    program.call(ask(user("Fix it.")), answer(read, bash))
    first, second = program.opened("tool")
    assert program.closed(first) is program.closed(second) is None
    results = [result("t1", "x = 1"), result("t2", "no such file", failed=True)]
    program.call(ask(user("Fix it."), assistant(read, bash), *results), answer())

    assert (first.name, first.parent_id) == ("Read", program.run.id)
    assert first.attributes["inferred"] is True and first.attributes["tool_call_id"] == "t1"
    assert first.links is not None and first.links[0].reason == "asked by"
    ends = [program.closed(span) for span in (first, second)]
    assert [end and (end.status, end.body) for end in ends] == [
        ("ok", "x = 1"),
        ("error", "no such file"),
    ]


def test_a_conversation_that_begins_with_an_argument_is_a_sub_agent(program: Program) -> None:
    prompt = "Count the functions."
    start = use("t1", "Agent", prompt=prompt, subagent_type="explorer")
    program.call(ask(user("Fix it.")), answer(start))
    program.call(ask(user(prompt), system="You search."), answer(use("t2", "Bash", command="ls")))
    inner = [user(prompt), assistant(use("t2", "Bash", command="ls")), result("t2", "a.py")]
    program.call(ask(*inner, system="You search."), answer())
    program.call(ask(user("Fix it."), assistant(start), result("t1", "Two.")), answer())

    (agent,) = program.opened("agent")
    outer, bash = program.opened("tool")
    assert (agent.name, agent.parent_id, bash.parent_id) == (
        "explorer",
        outer.span_id,
        agent.span_id,
    )
    calls = [span.parent_id for span in program.opened("llm")]
    assert len(calls) == 4
    end = program.closed(agent)
    assert end is not None and end.body == "Done."


def test_two_sub_agents_with_the_same_prompt_are_two(program: Program) -> None:
    prompt = "Count the functions."
    starts = [use(call_id, "Agent", prompt=prompt) for call_id in ("t1", "t2")]
    program.call(ask(user("Fix it.")), answer(*starts))
    for _ in starts:
        program.call(ask(user(prompt), system="You search."), answer())

    assert len({span.parent_id for span in program.opened("agent")}) == 2


def test_a_client_may_add_ids_to_calls_that_came_without(program: Program) -> None:
    function = {"name": "read_file", "args": {"path": "a.py"}}
    response = {
        "candidates": [{"content": {"role": "model", "parts": [{"functionCall": function}]}}],
        "usageMetadata": {"promptTokenCount": 1},
    }
    first = {"role": "user", "parts": [{"text": "Fix it."}]}
    program.call({"contents": [first]}, response)
    call = {"role": "model", "parts": [{"functionCall": {**function, "id": "r1"}}]}
    output = {"name": "read_file", "id": "r1", "response": {"output": "x = 1"}}
    back = {"role": "user", "parts": [{"functionResponse": output}]}
    program.call({"contents": [first, call, back]}, response)
    both = {"role": "user", "parts": [{"functionResponse": {**output, "id": "r2"}}]}
    again = {"role": "model", "parts": [{"functionCall": {**function, "id": "r2"}}]}
    program.call({"contents": [first, call, back, again, both]}, response)

    ends = [program.closed(span) for span in program.opened("tool")]
    assert [end and end.attributes["tool_call_id"] for end in ends] == ["r1", "r2", None]


def test_tools_without_a_result_end_with_the_program(program: Program) -> None:
    program.call(ask(user("Fix it.")), answer(use("t1", "Bash", command="sleep 600")))
    program.tools.close("interrupted")

    (tool,) = program.opened("tool")
    end = program.closed(tool)
    assert end is not None and end.status == "interrupted"


def test_a_conversation_with_tools_is_an_agent_for_each_turn(program: Program) -> None:
    program.context.program = "claude"
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    context = {"type": "text", "text": "<reminder>Today is Monday.</reminder>"}
    first = {"role": "user", "content": [context, {"type": "text", "text": "Fix it."}]}
    program.call(ask(user("Name this: Fix it.")), answer())
    program.call({**ask(first), "tools": tools}, answer())
    more = [first, assistant({"type": "text", "text": "Done."}), user("Test it.")]
    program.call({**ask(*more), "tools": tools}, answer())

    agents = program.opened("agent")
    assert [(each.name, each.body) for each in agents] == [
        ("claude", "Fix it."),
        ("claude", "Test it."),
    ]
