"""The bug catalogue, as far as it is about requests and caches.

Each bug is planted by a small program that runs through the real recorder, journal, collector and
store. `check` names its kind, its span and the evidence; the same program without the bug gives no
such finding. `pytest -s` prints the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llm_evidence import (
    MARK,
    RULES,
    TOOLS,
    Agent,
    anthropic_answer,
    anthropic_request,
    cached,
    examine,
)

from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks import run_checks
from vestige.query.evidence import Evidence

Planted = tuple[Span, list[Span]]
"""The span to blame, and others that the evidence must name."""
Program = Callable[[Agent, bool], Planted]

ASK = {"role": "user", "content": "Which of our customers wrote last week?"}
USE = {"type": "tool_use", "id": "toolu_7", "name": "search", "input": {"q": "customers"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_7", "content": "Ada, Bo"}
ANSWER = {"role": "assistant", "content": "Ada and Bo did."}
MORE = {"role": "user", "content": "And the week before, if you know?"}
TURN_1, TURN_2 = [ASK], [ASK, ANSWER, MORE]
FILLED, HIT, MISSED = cached(0, 2100), cached(2100, 30), cached(0, 2130)


def corrupted_history(agent: Agent, bug: bool) -> Planted:
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
            "message": "messages.1: `tool_use` ids were found without `tool_result` blocks: toolu_7",
        },
    }
    bad = agent.call(anthropic_request([*step, MORE]), refusal, status="error", status_code=400)
    return bad, []


def _two_turns(agent: Agent, bug: bool, second: dict[str, Any]) -> tuple[Span, Span]:
    first = agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(20)
    request = second if bug else anthropic_request(TURN_2)
    return first, agent.call(request, MISSED if bug else HIT)


def prefix_changed(agent: Agent, bug: bool) -> Planted:
    """The system prompt tells the time."""
    spans = []
    for minute, turn in ((14, TURN_1), (15, TURN_2)):
        clock = f"It is 10:{minute if bug else 14}."
        body = json.dumps(anthropic_request(turn, system=f"{clock} {RULES}"))
        span = agent.run.child("chat", "llm", body=body)
        span.segments([("clock", clock), ("persona", RULES)], body=body)
        span.end(body=json.dumps(MISSED if bug or turn is TURN_1 else HIT))
        spans.append(span)
    return spans[1], [spans[0]]


def breakpoint_moved(agent: Agent, bug: bool) -> Planted:
    """A new client marks the tools, and no longer the system prompt."""
    marked = [{**TOOLS[0], "cache_control": MARK}]
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, mark=False, tools=marked))
    return second, [first]


def warm_prefix_differs(agent: Agent, bug: bool) -> Planted:
    """What keeps the cache warm is built by other code: one blank more."""
    agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(250)
    system = RULES + (" " if bug else "")
    warm = agent.call(anthropic_request(TURN_1, system=system), FILLED if bug else HIT, warm=True)
    agent.wait(250)
    real = agent.call(anthropic_request(TURN_2), MISSED if bug else HIT)
    return warm, [real]


def gap_over_ttl(agent: Agent, bug: bool) -> Planted:
    """A slow tool; nobody kept the cache warm."""
    first = agent.call(anthropic_request(TURN_1), FILLED)
    agent.wait(420 if bug else 120)
    return agent.call(anthropic_request(TURN_2), MISSED if bug else HIT), [first]


def model_changed(agent: Agent, bug: bool) -> Planted:
    """A fallback to another model in the middle of a conversation."""
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, model="claude-haiku-4-5"))
    return second, [first]


def key_order(agent: Agent, bug: bool) -> Planted:
    """Tool schemas are written from a map that has no order."""
    shuffled = [dict(reversed(TOOLS[0].items()))]
    first, second = _two_turns(agent, bug, anthropic_request(TURN_2, tools=shuffled))
    return second, [first]


def roles_merged(agent: Agent, bug: bool) -> Planted:
    """An adapter for a model without a system role puts the rules into the user's mouth."""
    talk = [{"role": "system", "content": "Never tell a customer's address."}, *TURN_2]
    step = agent.run.child("step 1", "step", body=json.dumps({"messages": talk}))
    sent = talk
    if bug:
        sent = [{"role": "user", "content": f"{talk[0]['content']}\n\n{ASK['content']}"}, *talk[2:]]
    call = agent.call({"model": "gpt-5", "messages": sent}, None, parent=step, provider="openai")
    step.end()
    return step, [call]


def write_above_read(agent: Agent, bug: bool) -> Planted:
    """Every sub-agent writes a cache that none of them reads."""
    calls = []
    for n in range(5):
        task = [{"role": "user", "content": f"Look into customer {n}."}]
        answer = HIT if n and not bug else FILLED
        calls.append(agent.call(anthropic_request(task), answer))
        agent.wait(1)
    return calls[1], [calls[0], calls[2]]


CATALOGUE: dict[str, tuple[Program, str]] = {
    "provider rejects corrupted history": (corrupted_history, "history/invalid"),
    "cache 0 %: prefix changed": (prefix_changed, "cache/prefix-changed"),
    "cache 0 %: breakpoint moved": (breakpoint_moved, "cache/breakpoint"),
    "cache 0 %: warm prefix not identical": (warm_prefix_differs, "cache/warm-prefix-differs"),
    "cache 0 %: gap over TTL": (gap_over_ttl, "cache/ttl-gap"),
    "cache 0 %: model changed": (model_changed, "cache/model-changed"),
    "cache 0 %: key order": (key_order, "cache/key-order"),
    "roles merged by a transform": (roles_merged, "history/roles-merged"),
    "cache write far above read": (write_above_read, "cache/churn"),
}
OURS = ("history/", "cache/", "output/", "prompt/")

_rows: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    yield
    print("\n" + "\n".join(_rows))


def _check(evidence: Evidence) -> list[Any]:
    found, _, failed = run_checks(evidence)

    assert failed == {}
    return [finding for finding in found if finding.kind.startswith(OURS)]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_planted_bug_is_found_with_its_span(home: Home, name: str) -> None:
    program, kind = CATALOGUE[name]
    agent = Agent(home)
    cause, others = program(agent, True)
    agent.done()

    with examine(home) as evidence:
        found = [finding for finding in _check(evidence) if finding.kind == kind]
        _rows.append(f"{name:<38} {kind:<26} {found[0].message if found else 'NOT FOUND'}")

        assert [finding.cause for finding in found] == [cause.id]
        assert {span.id for span in others} <= {found[0].cause, *found[0].evidence}
        assert found[0].severity != "hint" and found[0].basis == "measured"
        assert evidence.spans[cause.id].short_id in found[0].command or "diff" in found[0].command


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_same_program_without_its_bug_is_clean(home: Home, name: str) -> None:
    program, _ = CATALOGUE[name]
    agent = Agent(home)
    program(agent, False)
    agent.done()

    with examine(home) as evidence:
        assert [finding.message for finding in _check(evidence)] == []


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name.startswith("cache 0")])
def test_the_six_causes_are_told_apart(home: Home, name: str) -> None:
    """One miss has one cause."""
    program, kind = CATALOGUE[name]
    agent = Agent(home)
    program(agent, True)
    agent.done()

    with examine(home) as evidence:
        assert {f.kind for f in _check(evidence) if f.check == "cache-miss"} == {kind}
