"""Costs of steps: each model call once, sub-agents added to their caller."""

from __future__ import annotations

import pytest

from vestige.home import Home
from vestige.recorder import Recorder
from vestige.transfer import open_ids

REQUEST = '{"model": "m", "messages": [{"role": "user", "content": "%s"}]}'
CALL = (
    '{"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "c1",'
    ' "type": "function", "function": {"name": "helper", "arguments": "{}"}}]}}]}'
)
ANSWER = '{"choices": [{"message": {"role": "assistant", "content": "%s"}}]}'


def test_a_sub_agent_is_added_to_the_step_that_called_it(home: Home) -> None:
    usage = {"input_tokens": 10, "output_tokens": 1}
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("shop") as run:
        call = run.span(
            "ask", type="llm", body=REQUEST % "plan", attributes={"cost_usd": 1.0, **usage}
        )
        call.end(body=CALL)
        with (
            run.span("helper", type="tool", attributes={"tool_call_id": "c1"}) as tool,
            tool.span("helper", type="agent", attributes={"cost_usd": 4.0, **usage}) as agent,
        ):
            for cost in (0.25, 0.5):
                inner = agent.span(
                    "ask",
                    type="llm",
                    body=REQUEST % f"part {cost}",
                    attributes={"cost_usd": cost, **usage},
                )
                inner.end(body=ANSWER % f"found {cost}")
    with open_ids(home, None) as (debugger, _):
        data = debugger.overview("r2").data()

    costs = [(step["cost_usd"], step["total_cost_usd"]) for step in data["steps"]]
    assert costs == [(1.0, 1.75), (0.25, 0.25), (0.5, 0.5)]
    assert data["cost_usd"] == pytest.approx(sum(cost for cost, _ in costs))
