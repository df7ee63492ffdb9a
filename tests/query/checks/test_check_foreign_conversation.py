"""Messages in the wrong conversation, and messages that a conversation has twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.planted_bugs import answer, findings, recording, span_named, think
from vestige._runtime.clock import FakeClock
from vestige.home import Home
from vestige.query.checks.model.foreign_conversation import (
    foreign_response,
    misrouted_answer,
    repeated_message,
)

FLIGHT = "Your flight BA-117 leaves at 09:40."
BOOK = "Book a table for two at Roma, 19:30, name Jansen."


def chat(system: str, *texts: str) -> str:
    """Return a request: its system prompt, then messages of the user and the model in turn."""
    turns = [
        {"role": "assistant" if index % 2 else "user", "content": text}
        for index, text in enumerate(texts)
    ]
    messages = [{"role": "system", "content": system}, *turns]
    return json.dumps({"model": "gpt-4o", "messages": messages})


def two_conversations(home: Home, *, ada: str | None, bob: str) -> None:
    with recording(home) as run:
        think(run, chat("For Ada.", "When is my flight?"), answer(text=FLIGHT), "ada")
        think(run, chat("For Bob.", "When is my dentist?"), answer(text="On Friday at 15:15."))
        think(run, chat("For Bob.", "When is my dentist?", bob, "Thanks!"), answer(text="Bye"), "b")
        history = ["When is my flight?", *([ada] if ada else []), "Thanks!"]
        think(run, chat("For Ada.", *history), answer(text="Bye"))


def test_an_answer_in_the_history_of_another_conversation_is_an_error(home: Home) -> None:
    two_conversations(home, ada=None, bob=FLIGHT)

    (found,) = findings(home, misrouted_answer)

    assert (found.kind, found.severity) == ("history/misrouted", "error")
    assert found.cause == span_named(home, "b").id
    assert found.evidence[1] == span_named(home, "ada").id and FLIGHT in found.message


@pytest.mark.parametrize(
    ("ada", "bob"),
    [(FLIGHT, "On Friday at 15:15."), (FLIGHT, FLIGHT), (None, "On Friday at 15:15.")],
    ids=["each has its own", "an agent that quotes another", "only dropped"],
)
def test_answers_in_their_own_conversation_are_silent(
    home: Home, ada: str | None, bob: str
) -> None:
    two_conversations(home, ada=ada, bob=bob)

    assert findings(home, misrouted_answer) == []


def respond(run: Any, number: int, previous: str | None, **fields: Any) -> None:
    body = {"model": "gpt-4.1", "input": f"turn {number}", "previous_response_id": previous}
    message = {"type": "message", "role": "assistant", "content": []}
    got = {"id": f"resp_{number}", "object": "response", "output": [message]}
    think(run, json.dumps({**body, **fields}), json.dumps(got), f"turn {number}")


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ({"user": "ada"}, {"user": "bob"}, "user"),
        (
            {"metadata": {"conversation_id": "c1"}},
            {"metadata": {"conversation_id": "c2"}},
            "metadata.conversation_id",
        ),
        ({"user": "ada"}, {"user": "ada"}, None),
        ({"user": "ada"}, {}, None),
        ({"metadata": {"step": "1"}}, {"metadata": {"step": "2"}}, None),
    ],
)
def test_a_response_of_another_user_is_an_error(
    home: Home, first: dict[str, Any], second: dict[str, Any], key: str | None
) -> None:
    with recording(home) as run:
        respond(run, 1, None, **first)
        respond(run, 2, "resp_1", **second)

    found = findings(home, foreign_response)

    assert [each.kind for each in found] == (["history/foreign-response"] if key else [])
    if key:
        assert found[0].cause == span_named(home, "turn 2").id
        assert f"whose {key} is" in found[0].message


@pytest.mark.parametrize(
    ("again", "after_s", "count"),
    [(BOOK, 0.3, 1), (BOOK, 60.0, 0), ("Thank you very much for the quick booking!", 0.3, 0)],
    ids=["at once", "after a minute", "another message"],
)
def test_a_message_that_is_handled_twice_is_a_warning(
    home: Home, again: str, after_s: float, count: int
) -> None:
    clock = FakeClock()
    with recording(home, clock=clock) as run:
        think(run, chat("You book.", BOOK), answer(text="Booked, 701."), "first")
        clock.advance(int(after_s * 1e9))
        think(run, chat("You book.", BOOK, "Booked, 701.", again), answer(text="Booked, 702."), "2")

    found = findings(home, repeated_message)

    assert [each.kind for each in found] == ["history/repeated-message"] * count
    if found:
        assert found[0].cause == span_named(home, "2").id
