"""The causes of a cache miss, each with its own finding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from support.llm_evidence import (
    MARK,
    RULES,
    TOOLS,
    Agent,
    anthropic_request,
    cached,
    examine,
    findings,
)
from vestige.home import Home
from vestige.query.checks import run_checks
from vestige.query.checks.model.prompt_cache import cache_churn, cache_miss

ONE = {"role": "user", "content": "first question"}
TWO = {"role": "assistant", "content": "first answer"}
THREE = {"role": "user", "content": "second question"}
FIRST, NEXT = [ONE], [ONE, TWO, THREE]
MISS, HIT, FILL = cached(0, 2100), cached(2100, 20), cached(0, 2100)


def _request(messages: list[dict[str, Any]] = FIRST, **more: Any) -> dict[str, Any]:
    return anthropic_request(messages, **more)


def _kinds(home: Home) -> list[str]:
    return [finding.kind for finding in findings(home, cache_miss)]


def test_a_hit_is_silent_whatever_changed(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    agent.call(_request(NEXT, system=RULES + "x"), HIT)
    agent.done()

    assert _kinds(home) == []


def test_a_changed_prefix_is_shown_at_its_first_byte_with_its_contributor(home: Home) -> None:
    """Volatile text in the system prompt, of the same length as before."""
    agent = Agent(home)
    calls = []
    for n, messages in enumerate((FIRST, NEXT)):
        clock = f"It is 10:0{n}."
        body = json.dumps(_request(messages, system=RULES + clock))
        span = agent.run.child("chat", "llm", body=body)
        span.segments([("persona", RULES), ("clock", clock)], body=body)
        span.end(body=json.dumps(MISS))
        calls.append((span, body))
    agent.done()

    (found,) = findings(home, cache_miss)

    (before, _), (after, body) = calls
    assert (found.kind, found.cause, found.severity) == (
        "cache/prefix-changed",
        after.id,
        "warning",
    )
    assert found.evidence[:2] == [after.id, before.id]
    assert f"byte {body.index('10:01') + 4:,}" in found.message
    assert "contributed by clock (12 bytes, different text)" in found.message
    assert found.basis == "measured"


def test_a_contributor_that_grew_is_found_by_sizes_alone(home: Home) -> None:
    agent = Agent(home)
    for skill, messages in (("web", FIRST), ("web search", NEXT)):
        span = agent.run.child(
            "chat", "llm", body=json.dumps(_request(messages, system=skill + RULES))
        )
        span.segments([("skill:web", skill), ("persona", RULES)])
        span.end(body=json.dumps(MISS))
    agent.done()

    (found,) = findings(home, cache_miss)

    assert "skill:web (3 -> 10 bytes)" in found.message


def test_a_breakpoint_that_went_is_told(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    after = agent.call(_request(NEXT, mark=False), cached(0, 0))
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.cause) == ("cache/breakpoint", after.id)


def test_a_breakpoint_that_moved_back_is_told(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    tools = [{**TOOLS[0], "cache_control": MARK}]
    agent.call(_request(NEXT, mark=False, tools=tools), cached(0, 300))
    agent.done()

    (found,) = findings(home, cache_miss)

    assert found.kind == "cache/breakpoint"
    assert "system" in found.message and "tools[0]" in found.message


@pytest.mark.parametrize(("marked", "kinds"), [((0,), ["cache/breakpoint"]), ((0, 1), [])])
def test_a_breakpoint_that_moved_within_system_is_found(
    home: Home, marked: tuple[int, ...], kinds: list[str]
) -> None:
    def system(*marks: int) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": "You are brief."},
            {"type": "text", "text": RULES},
        ]
        for index in marks:
            blocks[index]["cache_control"] = MARK
        return blocks

    agent = Agent(home)
    agent.call({**_request(), "system": system(1)}, FILL)
    again = {**_request(NEXT), "system": system(*marked)}
    agent.call(again, HIT if kinds == [] else MISS)
    agent.done()

    found = findings(home, cache_miss)

    assert [finding.kind for finding in found] == kinds
    assert all("within system" in finding.message for finding in found)


def test_a_warming_call_with_another_prefix_is_the_cause(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    agent.wait(250)
    warm = agent.call(_request(system=RULES + " "), FILL, warm=True)
    agent.wait(250)
    agent.call(_request(NEXT), MISS)
    agent.done()

    (found,) = [f for f in findings(home, cache_miss) if f.cause == warm.id]

    assert found.kind == "cache/warm-prefix-differs"


def test_a_gap_over_the_lifetime_is_told_only_when_the_prefix_is_the_same(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    agent.wait(400)
    after = agent.call(_request(NEXT), MISS)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.cause) == ("cache/ttl-gap", after.id)
    assert "400 s" in found.message


def test_a_cache_that_lives_an_hour_does_not_expire_in_minutes(home: Home) -> None:
    request = json.dumps(_request()).replace('"ephemeral"', '"ephemeral", "ttl": "1h"')
    agent = Agent(home)
    agent.call(request, FILL)
    agent.wait(400)
    agent.call(request, MISS)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.severity, found.basis) == ("cache/unexplained", "hint", "hypothesis")


def test_another_model_has_another_cache(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    after = agent.call(_request(NEXT, model="claude-opus-4-5"), MISS)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.cause) == ("cache/model-changed", after.id)


def test_a_model_that_comes_back_is_compared_with_itself(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    agent.call(_request(model="claude-haiku-4-5"), FILL)
    agent.call(_request(NEXT), HIT)
    agent.call(_request(NEXT, model="claude-haiku-4-5"), HIT)
    agent.done()

    assert _kinds(home) == ["cache/model-changed"]


@pytest.mark.parametrize("how", ["keys", "blanks"])
def test_the_same_json_in_different_bytes_is_told_apart(home: Home, how: str) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    if how == "keys":
        shuffled = [dict(reversed(TOOLS[0].items()))]
        after = agent.call(_request(NEXT, tools=shuffled), MISS)
    else:
        after = agent.call(json.dumps(_request(NEXT), separators=(",", ":")), MISS)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.cause) == ("cache/key-order", after.id)


def test_without_usage_a_change_is_a_hint_and_the_rest_is_silent(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), None)
    agent.call(_request(NEXT), None)
    agent.call(_request(NEXT, system=RULES + "x"), None)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.severity, found.basis) == (
        "cache/prefix-changed",
        "hint",
        "hypothesis",
    )


def test_a_prompt_too_short_to_be_cached_is_silent(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(system="short"), cached(0, 0))
    agent.call(_request(NEXT, system="other"), cached(0, 0))
    agent.call({"model": "gpt-5", "messages": FIRST}, None, provider="openai")
    agent.call(
        {"model": "gpt-5", "messages": [{"role": "system", "content": "x"}, *FIRST]},
        None,
        provider="openai",
    )
    agent.done()

    assert _kinds(home) == []


def test_other_conversations_of_a_component_are_not_compared(home: Home) -> None:
    """Sub-agents with tasks of their own share a template at most; the same one is not a miss."""
    agent = Agent(home)
    for n in range(4):
        agent.call(_request([{"role": "user", "content": f"task {n}"}]), MISS)
    agent.done()

    assert _kinds(home) == []


def test_single_calls_of_one_template_are(home: Home) -> None:
    """Nothing but the time in a system prompt keeps every call from the cache."""
    agent = Agent(home)
    for n in range(4):
        agent.call(
            _request([{"role": "user", "content": f"task {n}"}], system=f"It is 10:0{n}. {RULES}"),
            MISS,
        )
    agent.done()

    (found,) = findings(home, cache_miss)

    assert found.kind == "cache/prefix-changed"
    assert "3 times" in found.message


def test_single_calls_whose_tools_are_written_in_another_order_are_compared_too(home: Home) -> None:
    tools = [*TOOLS, {**TOOLS[0], "name": "fetch"}]
    agent = Agent(home)
    agent.call(_request([ONE], tools=tools), MISS)
    agent.call(_request([THREE], tools=tools[::-1]), MISS)
    agent.call(_request([TWO], tools=TOOLS), MISS)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert found.kind == "cache/prefix-changed" and "tools[0]" in found.message


def test_a_call_beside_a_running_one_has_nothing_to_read(home: Home) -> None:
    agent = Agent(home)
    first = agent.run.child("chat", "llm", body=json.dumps(_request()))
    agent.call(_request(), MISS)
    first.end(body=json.dumps(MISS))
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.severity) == ("cache/parallel", "hint")


def test_automatic_caching_is_judged_by_its_read_count(home: Home) -> None:
    """OpenAI's: no markers, no write count."""
    agent = Agent(home)
    for n, read in enumerate((0, 0, 1900)):
        system = {"role": "system", "content": RULES + ("b" if n else "a")}
        usage = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": read}}
        agent.call(
            {"model": "gpt-5", "messages": [system, *NEXT[: 1 + 2 * min(n, 1)]]},
            {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage},
            provider="openai",
        )
    agent.done()

    assert _kinds(home) == ["cache/prefix-changed"]


@pytest.mark.parametrize("provider", ["gemini", "openai-responses"])
def test_other_providers_are_understood(home: Home, provider: str) -> None:
    agent = Agent(home)
    for n in range(2):
        rules = f"It is 10:0{n}. {RULES}"
        if provider == "gemini":
            request: dict[str, Any] = {
                "systemInstruction": {"parts": [{"text": rules}]},
                "contents": [{"role": "user", "parts": [{"text": "a question"}]}],
            }
            answer: dict[str, Any] = {
                "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 2000, "cachedContentTokenCount": 0},
            }
        else:
            request = {
                "model": "gpt-5",
                "instructions": rules,
                "input": [{"role": "user", "content": "a question"}],
            }
            answer = {
                "object": "response",
                "status": "completed",
                "output": [],
                "usage": {"input_tokens": 2000, "input_tokens_details": {"cached_tokens": 0}},
            }
        agent.call(request, answer, provider=provider)
    agent.done()

    (found,) = findings(home, cache_miss)

    assert (found.kind, found.basis) == ("cache/prefix-changed", "measured")
    assert "10:01" in found.message


def test_attributes_and_fingerprints_serve_where_there_are_no_bodies(home: Home) -> None:
    agent = Agent(home)
    for name in ("aaaa", "bbbb"):
        attributes = {
            "model": "m",
            "prefix.fingerprint": name,
            "cache_read_tokens": 0,
            "cache_write_tokens": 5000,
        }
        agent.run.child("chat", "llm", attributes).end()
    agent.done()

    (found,) = findings(home, cache_miss)

    assert found.kind == "cache/prefix-changed" and "bbbb" in found.message


def test_every_body_is_read_and_parsed_once(home: Home) -> None:
    """Whatever number of checks looks at it."""
    agent = Agent(home)
    talk = [ONE]
    for n in range(5):
        agent.call(_request(talk), None)
        talk = [
            *talk,
            {"role": "assistant", "content": f"{n}"},
            {"role": "user", "content": f"{n}?"},
        ]
    agent.done()
    read: list[int] = []
    with examine(home) as evidence:
        read_bodies = evidence._bodies._read_bodies

        def count(body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
            read.extend(body_ids)
            return read_bodies(body_ids)

        evidence._bodies._read_bodies = count
        first = [evidence.request(call) for call in evidence.model_calls]

        run_checks(evidence)

        assert len(read) >= 5 and sorted(set(read)) == sorted(read)
        again = [evidence.request(call) for call in evidence.model_calls]
        assert all(one is other for one, other in zip(first, again, strict=True))


HOSTILE = [
    "",
    "null",
    "[]",
    "{",
    '{"messages": []}',
    '{"messages": [7, null, {"role": 5, "content": {"a": [1]}}, {"role": "user"}]}',
    (
        '{"messages": [{"role": "tool", "tool_call_id": 7, '
        '"content": [{"text": 9}]}], "model": 3, "tools": 1}'
    ),
    '{"contents": [{"parts": 3}], "tools": {}}',
    '{"model": "m", "input": [{"type": "function_call_output", "output": 4}]}',
    (
        '{"choices": [{"message": {"tool_calls": [{"function": 3}]}, "finish_reason": []}],'
        ' "usage": "x"}'
    ),
    "\u202e{\x00}" * 50,
    "[" * 5000,
]


def test_hostile_bodies_and_attributes_break_no_check(home: Home) -> None:
    """A check that fails is a check that hides."""
    odd = {
        "model": 3.5,
        "warm": "yes",
        "cache_read_tokens": "none",
        "cache_write_tokens": -5,
        "finish_reason": "x" * 5000,
        "status_code": "400",
        "prefix.fingerprint": 1.5,
        "provider": 7,
    }
    agent = Agent(home)
    for body in HOSTILE:
        for answer in HOSTILE:
            step = agent.run.child("step", "step", body=body)
            span = step.child("chat", "llm", odd if body < answer else {}, body)
            step.child("prompt", "prompt.assembly").end(body=answer)
            span.end(body=answer, status="error" if answer < body else None)
            step.end()
            agent.tool("t", answer, body[:20])
    agent.done()

    with examine(home) as evidence:
        found, _, failed = run_checks(evidence)

    ours = {
        "invalid-history",
        "history-mutation",
        "output-cut",
        "empty-response",
        "content-filter",
        "oversized-result",
        "repeated-result",
        "soft-error",
        "cache-miss",
        "cache-churn",
    }
    assert ours & failed.keys() == set()
    assert all(len(finding.message) < 1000 for finding in found)
    assert not any("\u202e" in f.message or "\x00" in f.message for f in found if f.check in ours)


def test_writing_far_more_than_reading_is_churn(home: Home) -> None:
    agent = Agent(home)
    calls = [
        agent.call(_request([{"role": "user", "content": f"task {n}"}]), MISS) for n in range(4)
    ]
    agent.done()

    (found,) = findings(home, cache_churn)

    assert (found.kind, found.cause) == ("cache/churn", calls[1].id)
    assert found.evidence == [call.id for call in calls]
    assert "8,400" in found.message


def test_a_cache_that_is_read_is_no_churn(home: Home) -> None:
    agent = Agent(home)
    agent.call(_request(), FILL)
    for _ in range(3):
        agent.call(_request(NEXT), HIT)
    agent.done()

    assert findings(home, cache_churn) == []


def test_a_prefix_that_grows_by_large_results_is_written_once(home: Home) -> None:
    """Each call reads all that was there before: that it then writes much is not waste."""
    agent = Agent(home)
    messages = [{"role": "user", "content": "summarise the files"}]
    for read, written in ((0, 2_000), (2_000, 18_000), (20_000, 60_000)):
        agent.call(anthropic_request(messages), cached(read, written))
    agent.done()

    assert findings(home, cache_churn) == []
