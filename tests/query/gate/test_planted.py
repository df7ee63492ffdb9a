"""A gate over recorded runs: each planted change fails with its code, and noise passes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

POLICY = '[tools]\ndeny = ["delete_*"]\n'


class Desk:
    """Records runs of an agent that varies a little, as agents do."""

    def __init__(self, home: Home) -> None:
        self.home, self.clock, self.rng = home, FakeClock(), random.Random(28)
        self.recorder = Recorder(home, crash_hooks=False, clock=self.clock)

    def record(self, **changes: Any) -> str:
        """Record a run, and return its id."""
        calls = changes.get("calls", self.rng.randint(3, 5))
        with self.recorder.run("desk") as run:
            for number in range(calls):
                tokens = round(self.rng.uniform(90, 110) * changes.get("tokens", 1))
                call = run.span("chat", "llm", {"model": "gpt-4o"})
                self.clock.advance(round(self.rng.uniform(0.9, 1.1) * 1e9))
                call.end(attributes={"input_tokens": tokens, "output_tokens": 5})
                argument = 0 if changes.get("loops") else number
                tool = changes.get("tool", "look_up") if number == 0 else "look_up"
                run.tool(tool, {"n": argument}).end(body=f"result {argument}")
        return run.run_id

    def gate(self, run: str, *options: object) -> tuple[int, list[str]]:
        """Return the exit code and the reason codes of a gate."""
        catch_up(self.home)
        selected = ("--runs", run, "--home", self.home.root, *options)
        result = vestige("gate", *selected)
        lines = [line for line in result.stdout.splitlines() if line.startswith("✕ ")]
        return result.exit_code, [line[2:].partition(": ")[0] for line in lines]


@pytest.fixture
def desk(home: Home, tmp_path: Path) -> Desk:
    desk = Desk(home)
    runs = " ".join(desk.record() for _ in range(5))
    assert desk.gate(runs, "--save", tmp_path / "baseline.json") == (0, [])
    return desk


def test_noise_within_the_spread_passes_twenty_of_twenty(desk: Desk, tmp_path: Path) -> None:
    runs = [desk.record() for _ in range(20)]

    results = [desk.gate(run, "--baseline", tmp_path / "baseline.json") for run in runs]

    assert results == [(0, [])] * 20


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"calls": 15}, "more-model-calls"),
        ({"tokens": 5}, "more-tokens"),
        ({"tool": "send_mail"}, "new-tool"),
        ({"calls": 6, "loops": True}, "loop"),
        ({"tool": "delete_order"}, "policy/tool-denied"),
    ],
)
def test_a_planted_change_fails_with_its_code(
    desk: Desk, tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    """Threefold calls, a new tool, a loop, +400 % tokens, a broken policy."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    run = desk.record(**changes)
    options = ("--baseline", tmp_path / "baseline.json", "--policy", policy)

    status, codes = desk.gate(run, *options)

    assert status == 1 and code in codes
    ignored = [word for each in codes for word in ("--ignore", each)]
    assert desk.gate(run, *options, *ignored) == (0, [])


def test_a_new_failure_beside_a_known_one_fails(home: Home, tmp_path: Path) -> None:
    """The known failure is the leading one, as in a suite with a test that always fails."""

    def record(*failing: str) -> str:
        with Recorder(home, crash_hooks=False) as recorder, recorder.run("suite") as run:
            for name in ("first", "second"):
                case = run.span(name, "tool")
                error = AssertionError(f"{name} is wrong") if name in failing else None
                case.end(error=error)
        catch_up(home)
        return run.run_id

    before, same, worse = record("first"), record("first"), record("first", "second")
    saved = tmp_path / "baseline.json"
    vestige("gate", "--runs", before, "--save", saved, "--home", home.root)

    passed, failed = (
        vestige("gate", "--runs", run, "--baseline", saved, "--home", home.root)
        for run in (same, worse)
    )

    assert passed.exit_code == 0, passed.stdout
    assert failed.exit_code == 1 and "second is wrong" in failed.stdout
    assert "first is wrong" not in failed.stdout
