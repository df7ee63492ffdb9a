"""A run may hold anything: no check may fail on it, and no message may carry control characters."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.planted_bugs import all_findings, answer, call, recording, request
from vestige.home import Home

NAMES = [
    "model",
    "provider",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "finish_reason",
    "attempt",
    "tool_call_id",
    "tool_name",
    "message_id",
    "target_conversation_id",
    "conversation_id",
    "cost_usd",
    "error.type",
    "error.message",
    "exit_code",
    "crash",
    "last_words",
    "last_span",
    "open_spans",
    "signal",
    "fault",
    "gap",
    "count",
    "sampled",
    "rss_bytes",
    "passed",
    "reward",
    "context_window",
]
TYPES = [
    "llm",
    "tool",
    "step",
    "test",
    "process",
    "http",
    "queue.enqueue",
    "queue.dequeue",
    "queue.deliver",
    "repair",
    "run",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    127,
    1.5,
    10**15,
    "",
    "x",
    "a\x1b[2J\nb",
    "command not found",
    "7",
    "SystemExit",
    "m-1",
    "stop",
]
BODIES = [
    None,
    "",
    "{}",
    "[]",
    "null",
    "{",
    '{"messages": 3}',
    request(),
    answer(call("nope")),
    answer(text="<weather><city>" * 50),
    request(tools=[{"function": {"name": None}}]),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_check_fails_on_odd_values(home: Home, seed: int) -> None:
    rng = random.Random(seed)

    def odd() -> dict[str, Any]:
        return {name: rng.choice(VALUES) for name in rng.sample(NAMES, 8)}

    with recording(home, rng.choice([None, "c-1"])) as run:
        parents = [run]
        for _ in range(80):
            name = rng.choice(["weather", "verify\x07it", "chat", "compact"])
            span = rng.choice(parents[-4:]).child(
                name, rng.choice(TYPES), odd(), rng.choice(BODIES)
            )
            parents.append(span)
            if rng.random() < 0.3:
                span.add_link(rng.choice(parents).id)
            if rng.random() < 0.3:
                run._emitter.send.__self__.logger("vestige").child(span).error("say", **odd())
            if rng.random() < 0.8:
                span.end(
                    attributes=odd(), body=rng.choice(BODIES), status=rng.choice(["ok", "error"])
                )

    found = all_findings(home)

    assert found
    for finding in found:
        assert finding.message.isprintable(), finding
        assert len(finding.message) < 600
        assert 0 <= finding.confidence <= 1
