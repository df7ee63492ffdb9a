"""A gate fails for a reason with a code, and noise within the spread of the baseline passes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.query.gate.measure_execution import Measurement
from vestige.query.gate.verdict import find_reasons
from vestige.query.groups.failure_signature import Signature


def make(**changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "run": "r1",
        "model_calls": 4,
        "tool_calls": 3,
        "tokens": 1_000,
        "cost_usd": 0.01,
        "duration_s": 12.0,
        "tools": {"look_up": 2, "refund": 1},
        "hosts": ["api.openai.com"],
        "failures": [],
        "loops": [],
    }
    return Measurement(**{**values, **changes})


BASELINE = [make(), make(tokens=1_100, duration_s=14.0), make(model_calls=5, cost_usd=0.012)]
FAILURE = Signature("tool/failed", "tool refund", "ValueError", "amount <value>", "shop.py in pay")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model_calls": 12}, "more-model-calls"),
        ({"tool_calls": 9}, "more-tool-calls"),
        ({"tokens": 5_000}, "more-tokens"),
        ({"cost_usd": 0.05}, "more-cost"),
        ({"duration_s": 60.0}, "more-time"),
        ({"tools": {"delete": 1}}, "new-tool"),
        ({"hosts": ["evil.example"]}, "new-host"),
        ({"loops": ["look_up called 6 times in a row."]}, "loop"),
        ({"failures": [FAILURE]}, "new-failure"),
        ({"exit_code": 3}, "command-failed"),
        ({"violations": [("tool-denied", "tool rm is denied.")]}, "policy/tool-denied"),
    ],
)
def test_each_change_for_the_worse_has_its_code(change: dict[str, Any], code: str) -> None:
    reasons = find_reasons([make(**change)], BASELINE)

    assert [reason.code for reason in reasons] == [code]
    assert reasons[0].run == "r1" and reasons[0].message


def test_three_calls_instead_of_one_fail() -> None:
    reasons = find_reasons([make(model_calls=3)], [make(model_calls=1)])

    assert [reason.code for reason in reasons] == ["more-model-calls"]


def test_a_known_failure_and_a_known_loop_pass() -> None:
    before = [make(failures=[FAILURE], loops=["again"])]

    assert find_reasons([make(failures=[FAILURE], loops=["again and again"])], before) == []


def test_one_slow_trial_of_three_passes() -> None:
    assert find_reasons([make(), make(duration_s=90.0), make()], BASELINE) == []


@given(st.integers(0, 10**9))
def test_noise_within_the_spread_of_the_trials_passes(seed: int) -> None:
    """The largest value is at most 1.5 times the smallest, which is always allowed."""
    rng = random.Random(seed)

    def draw() -> Measurement:
        return make(
            model_calls=rng.randint(4, 6),
            tool_calls=rng.randint(4, 6),
            tokens=rng.randint(900, 1_200),
            cost_usd=rng.uniform(0.009, 0.012),
            duration_s=rng.uniform(10, 15),
        )

    assert find_reasons([draw() for _ in range(3)], [draw() for _ in range(5)]) == []


def test_without_a_baseline_only_the_command_and_the_policy_count() -> None:
    assert find_reasons([make(tokens=10**9)], []) == []
