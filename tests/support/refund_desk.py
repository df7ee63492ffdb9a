"""A small agent with tools and a sub-agent, really recorded, for tests of the viewer's verbs.

record_desk(home)                 # two runs of one conversation: r2 went well, r3 did not
"""

from __future__ import annotations

import json
from typing import Any

from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.recorder import Recorder

START_NS = 1_794_700_800 * 10**9
SYSTEM = "You are the refund desk. Be brief, and look before you pay."
TOOLS = [
    {"name": name, "description": f"{name}.", "input_schema": {"type": "object"}}
    for name in ("lookup_order", "ask_fraud", "refund")
]
Messages = list[dict[str, Any]]


def record_desk(home: Home) -> None:
    clock = FakeClock(START_NS)
    with Recorder(home, crash_hooks=False, clock=clock) as recorder:
        Desk(recorder, clock).serve("A-17", pays=True)
        clock.advance(3_600 * 10**9)
        Desk(recorder, clock).serve("A-18", pays=False)
    catch_up(home)


class Desk:
    """One run of the agent."""

    def __init__(self, recorder: Recorder, clock: FakeClock) -> None:
        self.recorder, self.clock = recorder, clock
        self.messages: Messages = []

    def serve(self, order: str, *, pays: bool) -> None:
        with self.recorder.run("refund desk", "conv 1") as run:
            run.log.info("request came in", order=order)
            self.messages.append({"role": "user", "content": f"Please refund {order}."})
            self._step(run, "Let me look.", "lookup_order", order, '{"state": "shipped"}')
            self._step(run, "I ask the fraud desk first.", "ask_fraud", order, "not fishy")
            self._step(
                run, "", "refund", order if pays else "0", '{"paid": 49.9}' if pays else None
            )
            self._call(run, "It is on its way." if pays else "I could not pay it back.")
            if not pays:
                run.end(error=RuntimeError("refund failed"))

    def _step(self, run: Span, text: str, tool: str, order: str, result: str | None) -> None:
        call_id = f"toolu_{len(self.messages)}"
        self._call(run, text, (call_id, tool, {"order": order}))
        span = run.tool(tool, {"order": order}, tool_call_id=call_id)
        self.clock.advance(20_000_000)
        if tool == "ask_fraud":
            self._ask_fraud(span, order)
        if result is None:
            run.log.error("card refused", order=order)
            span.end(error=ValueError("no such order: 0"))
        else:
            span.end(body=result)
        message = {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": result or "no such order: 0",
        }
        self.messages.append({"role": "user", "content": [message]})

    def _ask_fraud(self, tool: Span, order: str) -> None:
        with tool.child("fraud desk", "agent") as agent:
            request = ask(
                [{"role": "user", "content": f"Is {order} fishy?"}], "You are the fraud desk."
            )
            agent.child("messages.create", "llm", body=json.dumps(request)).end(
                body=json.dumps(answer("No, it is not."))
            )

    def _call(self, run: Span, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        request, response = ask(self.messages), answer(text, *calls)
        body = json.dumps(request)
        attributes = {"model": "claude-sonnet-4-5", "provider": "anthropic"}
        span = run.child("messages.create", "llm", body=body, attributes=attributes)
        history = [
            ("persona", SYSTEM),
            *((f"tool:{tool['name']}", json.dumps(tool)) for tool in TOOLS),
        ]
        span.segments(history, body=body)
        self.clock.advance(1_200_000_000)
        span.set_attributes(input_tokens=800, output_tokens=40, cache_read_tokens=500)
        span.end(body=json.dumps(response))
        self.messages.append({"role": "assistant", "content": response["content"]})


def ask(messages: Messages, system: str = SYSTEM) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "tools": TOOLS,
        "system": system,
        "messages": messages,
    }


def answer(text: str, *calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in calls
    ]
    return {
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 800, "output_tokens": 40},
    }
