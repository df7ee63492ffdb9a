"""Runs of a refund desk: successes, a sub-agent, a failure with its cause, hostile text.

fill(home)                       a home full of them, over some days
refund(recorder, clock, ...)     one run of it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

HOUR_NS = 3600 * 10**9
SECOND_NS = 10**9
PERSONA = "You are the refund desk. Be brief, and look before you pay."
TOOLS = [
    {
        "name": name,
        "description": description,
        "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}},
    }
    for name, description in (
        ("lookup_order", "Look an order up."),
        ("refund", "Pay an order back."),
        ("ask_fraud", "Ask the fraud desk whether an order is fishy."),
    )
]
HOSTILE = (
    "<script>window.pwned = 1</script><img src=https://evil.example/x onerror='window.pwned=2'>"
    " \u202egnp.exe \x1b[31mred\x00 \u0645\u0631\u062d\u0628\u0627 ![i](https://evil.example/y.png)"
)


def fill(home: Home) -> None:
    """Record six days of runs (retention keeps seven). Some fail; one has hostile text."""
    clock = FakeClock(SYSTEM.now_ns() - 6 * 24 * HOUR_NS - HOUR_NS)
    with Recorder(home, crash_hooks=False, clock=clock) as recorder:
        for number in range(18):
            refund(
                recorder,
                clock,
                f"A-{number}",
                good=number % 5 != 3,
                conversation=f"talk {number // 3}",
            )
            clock.advance(8 * HOUR_NS)
        hostile(recorder, clock)
        refund(recorder, clock, "A-18", good=False, conversation="talk 6")
    catch_up(home)


def refund(
    recorder: Recorder, clock: FakeClock, order: str, *, good: bool, conversation: str
) -> None:
    """Look the order up, ask a sub-agent, pay it back; or, not good, pay another one's back."""
    with recorder.run("refund desk", conversation) as run:
        run.log.info("request came in", order=order)
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Please refund order {order}."}
        ]
        first = _answer(
            "Let me look at the order.", [("toolu_1", "lookup_order", {"order": order})]
        )
        _call(run, messages, first, clock)
        with run.tool("lookup_order", {"order": order}, tool_call_id="toolu_1") as tool:
            clock.advance(SECOND_NS // 50)
            tool.end(body=json.dumps({"order": order, "state": "shipped", "total": 49.9}))
        messages += _result(first, "toolu_1", '{"state": "shipped", "total": 49.9}')
        second = _answer(
            "I ask the fraud desk.", [("toolu_2", "ask_fraud", {"order": order})], 900, 800
        )
        _call(run, messages, second, clock)
        with run.tool("ask_fraud", {"order": order}, tool_call_id="toolu_2") as tool:
            desk = tool.child("fraud desk", "agent")
            question = [{"role": "user", "content": f"Is order {order} fishy?"}]
            _call(desk, question, _answer("No, it is not.", (), 120), clock)
            desk.end()
            tool.end(body="not fishy")
        messages += _result(second, "toolu_2", "not fishy")
        paid = order if good else "0"
        third = _answer("", [("toolu_3", "refund", {"order": paid})], 1000, 900)
        _call(run, messages, third, clock)
        tool = run.tool("refund", {"order": paid}, tool_call_id="toolu_3")
        clock.advance(SECOND_NS // 3)
        if good:
            tool.end(body='{"paid": 49.9}')
            _call(run, messages, _answer("Your 49.90 are on their way.", (), 1100, 1000), clock)
        else:
            run.log.error("card refused", order=order)
            tool.end(error=ValueError("no such order: 0"))
            run.end(error=RuntimeError("refund failed"))


def hostile(recorder: Recorder, clock: FakeClock) -> None:
    with recorder.run(HOSTILE, HOSTILE) as run:
        run.log.error(HOSTILE)
        run.log.info("x" * 1_000_000)
        with run.tool(HOSTILE, {"text": HOSTILE}) as tool:
            clock.advance(SECOND_NS)
            tool.end(body=HOSTILE + "y" * 1_000_000)


def _call(
    span: Any, messages: list[dict[str, Any]], answer: dict[str, Any], clock: FakeClock
) -> None:
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "tools": TOOLS,
        "system": PERSONA,
        "messages": messages,
    }
    body = json.dumps(request)
    about = {"model": request["model"], "provider": "anthropic"}
    call = span.child("messages.create", "llm", body=body, attributes=about)
    clock.advance(SECOND_NS)
    usage = answer["usage"]
    call.set_attributes(
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=usage["cache_read_input_tokens"],
    )
    call.end(body=json.dumps(answer))


def _answer(
    text: str,
    calls: Sequence[tuple[str, str, dict[str, str]]],
    input_tokens: int = 800,
    read: int = 0,
) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": one, "name": name, "input": value} for one, name, value in calls
    ]
    return {
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {
            "input_tokens": input_tokens,
            "output_tokens": 40,
            "cache_read_input_tokens": read,
        },
    }


def _result(answer: dict[str, Any], id: str, text: str) -> list[dict[str, Any]]:
    result = {"type": "tool_result", "tool_use_id": id, "content": text}
    return [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
