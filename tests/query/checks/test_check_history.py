"""Requests that a provider refuses, and what a transform did on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.llm_evidence import Agent, anthropic_answer, anthropic_request, findings
from vestige.home import Home
from vestige.query.checks.model import history

USE = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "x"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ten results"}
USER = {"role": "user", "content": "please find the thing"}
REFUSAL = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "messages.1: `tool_use` ids were found without `tool_result` blocks: toolu_1",
    },
}
BROKEN = anthropic_request([USER, {"role": "assistant", "content": [USE]}, USER])
COMPLETE = anthropic_request(
    [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]
)


def test_a_refused_history_is_an_error_of_the_call_that_sent_it(home: Home) -> None:
    agent = Agent(home)
    agent.call(COMPLETE, anthropic_answer())
    bad = agent.call(BROKEN, REFUSAL, status="error", status_code=400)
    agent.done()

    (found,) = findings(home, history.invalid_history)

    assert (found.kind, found.severity, found.cause) == ("history/invalid", "error", bad.id)
    assert found.confidence == 0.95
    assert "toolu_1" in found.message and "rejected" in found.message


def test_a_history_that_was_taken_is_a_warning_told_once(home: Home) -> None:
    agent = Agent(home)
    first = agent.call(BROKEN, anthropic_answer())
    agent.call(BROKEN, anthropic_answer())
    agent.done()

    (found,) = findings(home, history.invalid_history)

    assert (found.severity, found.cause) == ("warning", first.id)
    assert "2 calls" in found.message


def test_a_provider_that_was_never_reached_has_refused_nothing(home: Home) -> None:
    """The wire saw the call leave, and no status come back."""
    agent = Agent(home)
    failed = {"error.type": "ConnectError", "error.message": "Connection refused"}
    agent.call(BROKEN, status="error", url="http://127.0.0.1:9/v1/messages", **failed)
    agent.done()

    (found,) = findings(home, history.invalid_history)

    assert (found.kind, found.severity) == ("history/invalid", "warning")
    assert "the provider refused it" not in found.message


@pytest.mark.parametrize("code", [429, 500, 401])
def test_a_refusal_for_another_reason_does_not_count(home: Home, code: int) -> None:
    agent = Agent(home)
    agent.call(
        BROKEN, {"type": "error", "error": {"message": "no"}}, status="error", status_code=code
    )
    agent.done()

    (found,) = findings(home, history.invalid_history)

    assert found.severity == "warning"


def test_the_providers_word_counts_where_there_is_no_body(home: Home) -> None:
    agent = Agent(home)
    span = agent.run.child("chat", "llm")
    span.end(RuntimeError("400: roles must alternate between user and assistant"))
    agent.run.child("chat", "llm").end(RuntimeError("connection reset"))
    agent.done()

    (found,) = findings(home, history.invalid_history)

    assert (found.kind, found.cause, found.basis) == ("history/refused", span.id, "hypothesis")


# --- transforms ----------------------------------------------------------------------------------

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a careful assistant."},
    {"role": "user", "content": "What is the weather in Bern today?"},
    {"role": "assistant", "content": "It rains in Bern, as it does."},
    {"role": "user", "content": "And what about tomorrow, please?"},
]


def _change(home: Home, before: Any, after: list[dict[str, Any]], provider: str = "openai") -> Any:
    agent = Agent(home)
    step = agent.run.child("step 1", "step", body=json.dumps(before))
    request = {"model": "gpt-5", "messages": after}
    agent.call(request, None, parent=step, provider=provider)
    step.end()
    agent.done()
    return step, findings(home, history.history_mutation)


def test_a_faithful_transform_is_silent(home: Home) -> None:
    """Also one that adds a system prompt, joins what one role says, and squeezes blanks."""
    after = [
        {"role": "system", "content": "You are a careful assistant.\n\nToday is Monday."},
        {"role": "user", "content": "What is the  weather\nin Bern today?"},
        *TALK[2:],
        {"role": "user", "content": "One more thing."},
    ]

    _, found = _change(home, TALK, after)

    assert found == []


def test_a_format_change_is_no_mutation(home: Home) -> None:
    """Chat completions before, Messages after: results stand elsewhere, and are the same."""
    call = {
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q": "x"}'},
    }
    before = [
        TALK[0],
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "ten results"},
    ]
    agent = Agent(home)
    step = agent.run.child("step 1", "step", body=json.dumps({"messages": before}))
    after = {**COMPLETE, "system": "You are a careful assistant."}
    agent.call(after, anthropic_answer(), parent=step)
    step.end()
    agent.done()

    assert findings(home, history.history_mutation) == []


def test_roles_that_were_merged_are_named(home: Home) -> None:
    merged = f"{TALK[0]['content']}\n\n{TALK[1]['content']}"

    step, (found,) = _change(home, TALK, [{"role": "user", "content": merged}, *TALK[2:]])

    assert (found.kind, found.cause) == ("history/roles-merged", step.id)
    assert "system" in found.message and "user" in found.message
    assert found.command.startswith("vestige diff ")


def test_a_role_that_was_changed_is_told(home: Home) -> None:
    after = [*TALK[:2], {**TALK[2], "role": "user"}, TALK[3]]

    _, (found,) = _change(home, {"messages": TALK}, after)

    assert found.kind == "history/roles-merged" and "role user" in found.message


def test_a_dropped_message_is_told(home: Home) -> None:
    step, (found,) = _change(home, {"messages": TALK}, [TALK[0], TALK[1], TALK[3]])

    assert (found.kind, found.cause) == ("history/message-dropped", step.id)
    assert "rains in Bern" in found.message


def test_a_changed_order_is_told(home: Home) -> None:
    _, (found,) = _change(home, TALK, [TALK[0], TALK[3], TALK[2], TALK[1]])

    assert found.kind == "history/message-reordered"


def test_a_changed_text_is_told_with_its_change(home: Home) -> None:
    changed = {"role": "user", "content": "What is the weather in Rome today?"}

    _, (found,) = _change(home, TALK, [TALK[0], changed, *TALK[2:]])

    assert found.kind == "history/content-changed"
    assert "Rome" in found.message


def test_a_changed_result_is_told(home: Home) -> None:
    agent = Agent(home)
    step = agent.run.child("step 1", "step", body=json.dumps(COMPLETE))
    transform = step.child("normalise")
    transform.end()
    text = json.dumps(COMPLETE).replace("ten results", "ten")
    agent.call(text, anthropic_answer(), parent=step)
    agent.done()

    (found,) = findings(home, history.history_mutation)

    assert (found.kind, found.cause) == ("history/content-changed", transform.id)
    assert "toolu_1" in found.message


def test_a_change_that_says_what_it_is_stays_untold(home: Home) -> None:
    agent = Agent(home)
    step = agent.run.child("step 1", "step", body=json.dumps(TALK))
    step.child("drop old turns", "repair", body=json.dumps(TALK[1])).end()
    agent.call({"model": "m", "messages": TALK[2:]}, None, parent=step, provider="openai")
    agent.done()

    assert findings(home, history.history_mutation) == []


def test_a_prompt_span_beside_the_call_is_before(home: Home) -> None:
    agent = Agent(home)
    step = agent.run.child("step 1", "step")
    prompt = step.child("prompt", "prompt", body=json.dumps({"messages": TALK}))
    prompt.end()
    agent.call({"model": "m", "messages": TALK[:3]}, None, parent=step, provider="openai")
    agent.done()

    (found,) = findings(home, history.history_mutation)

    assert (found.kind, found.cause) == ("history/message-dropped", prompt.id)


def test_a_step_whose_body_is_something_else_is_no_prompt(home: Home) -> None:
    for body in ("hello", '{"goal": 1}', "[1, 2]", "[", '{"messages": 7}'):
        _, found = _change(Home(home.root / str(len(body))), body, TALK)

        assert found == []
