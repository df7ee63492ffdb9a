"""The order of findings: kinds without precision, and what every run of a program has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import vestige
from support.planted_bugs import answer, call, request, think, use
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.failures.ranking import BELOW_CHANCE, severity_key
from vestige.record.finding import Finding
from vestige.recorder import Recorder

PRECISION = Path(__file__).parents[2] / "bench" / "precision.json"
FINDINGS_MIN = 5


def test_kinds_below_chance_are_those_of_the_measurement() -> None:
    table = json.loads(PRECISION.read_text())
    below = {
        kind
        for kind, row in table["kinds"].items()
        if row["findings"] >= FINDINGS_MIN and row["on_label"] < table["chance"]
    }

    assert below == BELOW_CHANCE


def test_a_kind_below_chance_comes_after_every_other_warning() -> None:
    def key(kind: str, severity: Any = "warning") -> tuple[int, int, float]:
        return severity_key(
            Finding(
                check="x",
                kind=kind,
                severity=severity,
                message="",
                confidence=0.9,
                basis="measured",
            )
        )

    below = next(iter(BELOW_CHANCE))
    assert key("cache/churn") < key(below)
    assert key(below, "error") < key("answer/made-up")


def ignore_an_error(run: Span) -> None:
    think(run, request(), answer(call({"city": "Oslo"})))
    use(run, output="Error: the quota is used up")
    think(run, request(), answer(text="It is 7 degrees in Oslo."))


def last_findings(home: Home, good_runs: int) -> dict[str, str]:
    """Return severities by kind of the last run, after other runs with the same finding."""
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        for _ in range(good_runs + 1):
            with recorder.run("agent") as run:
                ignore_an_error(run)
    catch_up(home)
    with vestige.open(home.root) as debugger:
        ids = [each["id"] for each in debugger.list(limit=50).data()["runs"]]
        for run_id in ids[1:]:
            debugger.check(run_id)
        found = debugger.check(run.id).data()["findings"]
    return {each["kind"]: each["severity"] for each in found}


def test_a_warning_that_most_successful_runs_have_is_a_hint(home: Home) -> None:
    assert last_findings(home, good_runs=4)["error/ignored"] == "hint"


def test_a_warning_of_few_runs_stays_a_warning(home: Home) -> None:
    assert last_findings(home, good_runs=1)["error/ignored"] == "warning"
