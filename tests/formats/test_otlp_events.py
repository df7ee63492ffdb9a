"""Events of spans as Strands and Bedrock write them: content blocks, tools and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vestige.formats.otlp.parse_span import Event
from vestige.formats.otlp.span_content import extract_content
from vestige.store.protocol import RunFilter
from vestige.transfer.open_any_path import open_path

USE = {"toolUse": {"toolUseId": "t1", "name": "look_up", "input": {"order": "4711"}}}
RESULT = {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "42 EUR"}]}}
CALL = {
    "id": "t1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"order":"4711"}'},
}


def event(name: str, **attributes: Any) -> Event:
    return Event(0, f"gen_ai.{name}", attributes)


def test_content_blocks_become_messages_tool_calls_and_tool_results() -> None:
    events = [
        event("system.message", content="Be brief."),
        event("user.message", content=json.dumps([{"text": "Refund 4711?"}])),
        event("assistant.message", content=json.dumps([{"text": "I look."}, USE])),
        event("tool.message", content=json.dumps([RESULT])),
        event("choice", finish_reason="end_turn", message=json.dumps([{"text": "42 EUR"}])),
    ]
    content = extract_content({}, events, "llm", "m")

    assert content.input is not None and content.output is not None
    assert json.loads(content.input)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Refund 4711?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "t1", "content": "42 EUR"},
    ]
    (choice,) = json.loads(content.output)["choices"]
    assert choice["message"] == {"role": "assistant", "content": "42 EUR"}
    assert choice["finish_reason"] == "end_turn"
    assert content.events == set(range(5))


def test_an_answer_of_a_tool_call_only_is_not_empty() -> None:
    content = extract_content({}, [event("choice", message=json.dumps([USE]))], "llm", None)

    assert content.output is not None
    message = json.loads(content.output)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_content_that_only_looks_like_blocks_is_not_changed() -> None:
    for text in ('[{"type": "text", "text": "a"}]', "[1]", "[]", '[{"text": 1}, 2]', "[{"):
        content = extract_content({}, [event("user.message", content=text)], "llm", None)
        assert content.input is not None
        assert json.loads(content.input)["messages"] == [{"role": "user", "content": text}]


def test_a_span_named_execute_tool_is_that_tool_with_its_events(tmp_path: Path) -> None:
    def make(number: int, name: str, *events: Event) -> dict[str, Any]:
        found = {
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": f"{number:016x}",
            "name": name,
            "startTimeUnixNano": str(1_790_000_000_000_000_000 + number),
            "endTimeUnixNano": str(1_790_000_000_000_001_000 - number),
            "events": [
                {
                    "timeUnixNano": "1790000000000000500",
                    "name": each.name,
                    "attributes": [
                        {"key": key, "value": {"stringValue": value}}
                        for key, value in each.attributes.items()
                    ],
                }
                for each in events
            ],
        }
        return found if number == 1 else found | {"parentSpanId": f"{1:016x}"}

    spans = [
        make(1, "main"),
        make(2, "invoke_agent refunds"),
        make(
            3,
            "execute_tool look_up",
            event("tool.message", role="tool", content='{"order":"4711"}', id="t1"),
            event("choice", message='[{"text":"42 EUR"}]', id="t1"),
        ),
        make(4, "execute_tool "),
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    with open_path(path) as debugger:
        (info,) = debugger.store.list_runs(RunFilter())
        run = debugger.store.load_run(info.id)
        _, agent, tool, nameless = run.spans
        assert tool.input is not None and tool.output is not None
        bodies = [debugger.store.read_body(each.id) for each in (tool.input, tool.output)]

    assert (agent.type, agent.name) == ("agent", "refunds")
    assert (tool.type, tool.name, tool.attributes["tool_name"]) == ("tool", "look_up", "look_up")
    assert bodies == [b'{"order":"4711"}', b'[{"text":"42 EUR"}]']
    assert (nameless.type, nameless.name) == ("tool", "execute_tool ")
    assert list(run.logs) == []
