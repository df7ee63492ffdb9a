"""Bugs of the catalogue that are in what a model is sent: histories, prefixes, caches, roles.

Each is a small agent that records through the real recorder; its docstring says how the bug came
about.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.bug import Bug, Planted
from support.llm_evidence import (
    MARK,
    RULES,
    TOOLS,
    Agent,
    anthropic_answer,
    anthropic_request,
    cached,
)
from vestige.emit.span import Span
from vestige.home import Home

Spans = tuple[Span, list[Span]]
"""The span to blame, and others that the evidence must name."""
Program = Callable[[Agent, bool], Spans]

ASK = {"role": "user", "content": "Which of our customers wrote last week?"}
USE = {"type": "tool_use", "id": "toolu_7", "name": "search", "input": {"q": "customers"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_7", "content": "Ada, Bo"}
ANSWER = {"role": "assistant", "content": "Ada and Bo did."}
MORE = {"role": "user", "content": "And the week before, if you know?"}
TURN_1, TURN_2 = [ASK], [ASK, ANSWER, MORE]
FILLED, HIT, MISSED = cached(0, 2100), cached(2100, 30), cached(0, 2130)


def corrupted_history(agent: Agent, bug: bool) -> Spans:
    """A tool was interrupted; its result never reached the history."""
    step = [ASK, {"role": "assistant", "content": [USE]}]
    agent.call(anthropic_request(TURN_1), anthropic_answer())
    if not bug:
        good = agent.call(anthropic_request([*step, {"role": "user", "content": [RESULT]}]), HIT)
        return good, []
    refusal = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1: `tool_use` ids were found without `tool_result` "
            "blocks: toolu_7",
        },
    }
    bad = agent.call(anthropic_request([*step, MORE]), refusal, status="error", status_code=400)
    return bad, []


def _two_turns(agent: Agent, bug: bool, second: dict[str, Any]) -> tuple[Span, Span]:
    first = agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(20)
    request = second if bug else anthropic_request(TURN_2)
    return first, agent.call(request, MISSED if bug else HIT)


def prefix_changed(agent: Agent, bug: bool) -> Spans:
    """The system prompt contains the time."""
    spans = []
    for minute, turn in ((14, TURN_1), (15, TURN_2)):
        clock = f"It is 10:{minute if bug else 14}."
        body = json.dumps(anthropic_request(turn, system=f"{clock} {RULES}"))
        span = agent.run.child("chat", "llm", body=body)
        span.segments([("clock", clock), ("persona", RULES)], body=body)
        span.end(body=json.dumps(MISSED if bug or turn is TURN_1 else HIT))
        spans.append(span)
    return spans[1], [spans[0]]


def breakpoint_moved(agent: Agent, bug: bool) -> Spans:
    """A new client marks the tools, and no longer the system prompt."""
    marked = [{**TOOLS[0], "cache_control": MARK}]
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, mark=False, tools=marked))
    return second, [first]


def warm_prefix_differs(agent: Agent, bug: bool) -> Spans:
    """What keeps the cache warm is built by other code: one blank more."""
    agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(250)
    system = RULES + (" " if bug else "")
    warm = agent.call(anthropic_request(TURN_1, system=system), FILLED if bug else HIT, warm=True)
    agent.wait(250)
    real = agent.call(anthropic_request(TURN_2), MISSED if bug else HIT)
    return warm, [real]


def gap_over_ttl(agent: Agent, bug: bool) -> Spans:
    """A slow tool; nobody kept the cache warm."""
    first = agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(420 if bug else 120)
    return agent.call(anthropic_request(TURN_2), MISSED if bug else HIT), [first]


def model_changed(agent: Agent, bug: bool) -> Spans:
    """A fallback to another model in the middle of a conversation."""
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, model="claude-haiku-4-5"))
    return second, [first]


def key_order(agent: Agent, bug: bool) -> Spans:
    """Tool schemas are written from a map that has no order."""
    shuffled = [dict(reversed(TOOLS[0].items()))]
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, tools=shuffled))
    return second, [first]


def roles_merged(agent: Agent, bug: bool) -> Spans:
    """An adapter for a model without a system role puts the rules into the user's mouth."""
    talk = [{"role": "system", "content": "Never tell a customer's address."}, *TURN_2]
    step = agent.run.child("step 1", "step", body=json.dumps({"messages": talk}))
    sent = talk
    if bug:
        sent = [{"role": "user", "content": f"{talk[0]['content']}\n\n{ASK['content']}"}, *talk[2:]]
    call = agent.call({"model": "gpt-5", "messages": sent}, None, parent=step, provider="openai")
    step.end()
    return step, [call]


def write_above_read(agent: Agent, bug: bool) -> Spans:
    """Every sub-agent writes a cache that none of them reads."""
    calls = []
    for n in range(5):
        task = [{"role": "user", "content": f"Look into customer {n}."}]
        answer = HIT if n and not bug else FILLED
        calls.append(agent.call(anthropic_request(task), answer))
        agent.wait(1)
    return calls[1], [calls[0], calls[2]]


def request_bug(name: str, kind: str, program: Program) -> Bug:
    def plant(home: Home, bug: bool) -> Planted:
        agent = Agent(home)
        cause, others = program(agent, bug)
        agent.done()
        return Planted(cause.id, [span.id for span in others])

    how = (program.__doc__ or "").strip().rstrip(".").lower()
    return Bug(name, how, kind, plant, run="answer", severities=("error", "warning"))


REQUESTS = [
    request_bug("provider rejects corrupted history", "history/invalid", corrupted_history),
    request_bug("cache 0 %: prefix changed", "cache/prefix-changed", prefix_changed),
    request_bug("cache 0 %: breakpoint moved", "cache/breakpoint", breakpoint_moved),
    request_bug(
        "cache 0 %: warm prefix not identical", "cache/warm-prefix-differs", warm_prefix_differs
    ),
    request_bug("cache 0 %: gap over TTL", "cache/ttl-gap", gap_over_ttl),
    request_bug("cache 0 %: model changed", "cache/model-changed", model_changed),
    request_bug("cache 0 %: key order", "cache/key-order", key_order),
    request_bug("roles merged by a transform", "history/roles-merged", roles_merged),
    request_bug("cache write far above read", "cache/churn", write_above_read),
]
