"""Histories that lose their first messages, and results under each other's call ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

import vestige
from support.llm_evidence import Agent, anthropic_answer, anthropic_request, findings
from support.planted_bugs import (
    WEATHER,
    answer,
    call,
    recording,
    request,
    requested_calls,
    result,
    span_named,
    think,
    use,
)
from support.planted_bugs import findings as planted
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.checks.model.history_continuity import history_head_loss, swapped_results

TURNS = [
    {"role": "user" if index % 2 == 0 else "assistant", "content": f"turn {index}"}
    for index in range(9)
]


def converse(home: Home, *histories: list[dict[str, Any]], between: str | None = None) -> None:
    agent = Agent(home)
    for index, messages in enumerate(histories):
        if between is not None and index == len(histories) - 1:
            agent.run.child(between, "step").end()
        agent.call(anthropic_request(messages), anthropic_answer())
    agent.done()


def test_first_messages_that_vanish_are_found(home: Home) -> None:
    converse(home, TURNS[:3], TURNS[:5], TURNS[2:7])

    (found,) = findings(home, history_head_loss)

    assert (found.kind, found.severity) == ("history/head-lost", "warning")
    assert "first 2 messages" in found.message and '"turn 0"' in found.message


def lose_head(home: Home, *, tools: Any = None) -> None:
    """A window over the last messages that also drops the system prompt."""
    turns = [
        {"role": "assistant" if index % 2 else "user", "content": f"turn {index}"}
        for index in range(11)
    ]
    system = {"role": "system", "content": "Answer in French."}
    histories: list[list[dict[str, Any]]] = [[system, *turns[:5]], turns[2:7], turns[4:9]]
    with recording(home) as run:
        for index, messages in enumerate(histories):
            body: dict[str, Any] = {"model": "gpt-4o", "messages": messages}
            if tools and index:
                body["tools"] = tools
            think(run, json.dumps(body), answer(text="ok"), f"call {index}")


def test_a_lost_system_prompt_is_reported_once_where_it_was_lost(home: Home) -> None:
    lose_head(home)

    (found,) = planted(home, history_head_loss)

    assert found.cause == span_named(home, "call 1").id
    assert "The system prompt and the first 2 messages" in found.message


def test_an_agent_with_other_tools_may_have_a_part_of_the_history(home: Home) -> None:
    lose_head(home, tools=[WEATHER])

    assert [each.cause for each in planted(home, history_head_loss)] == [
        span_named(home, "call 2").id
    ]


@pytest.mark.parametrize(
    ("histories", "between"),
    [
        ((TURNS[:3], TURNS[:5], TURNS[:7]), None),
        ((TURNS[:5], TURNS[2:7]), "compact history"),
        ((TURNS[:5], [{"role": "user", "content": "Summary so far"}, *TURNS[3:7]]), None),
        ((TURNS[:3], [{"role": "user", "content": "another question"}]), None),
        ((TURNS[:3], [TURNS[2]]), None),
    ],
    ids=["it grows", "a compaction", "a summary", "another conversation", "one message"],
)
def test_a_history_that_changes_for_a_reason_is_silent(
    home: Home, histories: tuple[list[dict[str, Any]], ...], between: str | None
) -> None:
    converse(home, *histories, between=between)

    assert findings(home, history_head_loss) == []


def parallel_calls(home: Home, oslo: str, rome: str) -> list[Any]:
    calls = (call({"city": "Oslo"}, "call_1"), call({"city": "Rome"}, "call_2"))
    with recording(home) as run:
        think(run, request(), answer(*calls))
        use(run, '{"city": "Oslo"}', "call_1", output="snow, -4 degrees")
        use(run, '{"city": "Rome"}', "call_2", output="sun, 21 degrees")
        sent = request(requested_calls(*calls), result(oslo, "call_1"), result(rome, "call_2"))
        think(run, sent, answer(text="Cold in Oslo, warm in Rome."))
    return planted(home, swapped_results)


def test_parallel_results_under_each_others_ids_are_an_error(home: Home) -> None:
    (found,) = parallel_calls(home, "sun, 21 degrees", "snow, -4 degrees")

    assert (found.kind, found.severity) == ("history/swapped-results", "error")
    assert len(found.evidence) == 3 and "weather" in found.message


@pytest.mark.parametrize(
    ("oslo", "rome"),
    [("snow, -4 degrees", "sun, 21 degrees"), ("[shortened]", "[shortened]")],
)
def test_parallel_results_at_their_place_are_silent(home: Home, oslo: str, rome: str) -> None:
    assert parallel_calls(home, oslo, rome) == []


def test_why_goes_past_an_uncaught_exception_to_the_refused_history(home: Home) -> None:
    message = "messages.1: `tool_use` ids were found without `tool_result` blocks: toolu_1"
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    tool_use = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "x"}}
    user = {"role": "user", "content": "find it"}
    agent = Agent(home)
    broken = [user, {"role": "assistant", "content": [tool_use]}, user]
    bad = agent.call(anthropic_request(broken), refusal, status="error", status_code=400)
    agent.run.end(RuntimeError(f"Error code: 400 - {message}"))
    agent.recorder.close()
    catch_up(home)

    with vestige.open(home.root) as debugger:
        chain = debugger.why(agent.run.id).data()["chain"]

    assert chain[0]["finding"]["kind"] == "crash/uncaught"
    assert chain[-1]["span_id"] == bad.id
    assert chain[-1]["finding"]["kind"] == "history/invalid"


def test_why_of_an_exception_of_the_program_stays_at_it(home: Home) -> None:
    agent = Agent(home)
    call_span = agent.call(
        anthropic_request([{"role": "user", "content": "hello"}]), anthropic_answer()
    )
    agent.run.end(KeyError("price"))
    agent.recorder.close()
    catch_up(home)

    with vestige.open(home.root) as debugger:
        chain = debugger.why(agent.run.id).data()["chain"]

    assert call_span.id not in [step["span_id"] for step in chain]
