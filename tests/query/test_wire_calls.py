"""Tool calls that only the wire shows are counted."""

from __future__ import annotations

from vestige.home import Home
from vestige.recorder import Recorder
from vestige.transfer import open_ids

REQUEST = (
    '{"model": "m", "messages": [{"role": "user", "content": "%s"}], "tools": [{"type": "function",'
    ' "function": {"name": "search", "description": "Find it", "parameters": {}}}]}'
)
CALL = (
    '{"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "%s",'
    ' "type": "function", "function": {"name": "search", "arguments": "{}"}}]}}]}'
)


def test_calls_in_answers_count_in_every_conversation(home: Home) -> None:
    """No history contains these calls, and no tool was recorded."""
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("shop") as run:
        for number in range(3):
            outer = run.span("client", type="llm", body=REQUEST % number)
            outer.span("wire", type="llm", body=REQUEST % number).end(body=CALL % number)
            outer.end(body=CALL % number)
    with open_ids(home, None) as (debugger, _):
        answer = debugger.stats(by="tool")

    (tool,) = answer.data()["ranking"]["measured"]["tools"]
    assert (tool["name"], tool["calls"], tool["asked"]) == ("search", 0, 3)
    assert "never called" not in answer.text()
    assert "3 requested" in answer.text()
