"""The other runs of a run's task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.recorder import Recorder
from vestige.store.open import open_store

LONG = "Answer the question in one sentence, and name the source of each fact. " * 8


TASKS = [
    ("triage", "Where is order 7?"),
    ("triage", "Where is order 7?"),
    ("triage", "Is the museum in Bern open on Monday?"),
    ("other program", "Where is order 7?"),
    ("long", LONG + "Where is order 7?"),
    ("long", LONG + "Which museums of Bern are open?"),
    ("long", LONG + "Where is order 7?"),
    ("silent", ""),
    ("silent", ""),
]


@dataclass
class Recorded:
    """The runs of the tasks, by their number."""

    debugger: Debugger
    ids: list[str]

    def same_task(self, number: int) -> list[dict[str, Any]]:
        return list(self.debugger.same_task(self.ids[number]).data()["runs"])

    def numbers(self, number: int) -> list[int]:
        return sorted(self.ids.index(run["id"]) for run in self.same_task(number))


@pytest.fixture
def recorded(home: Home) -> Iterator[Recorded]:
    ids: list[str] = []
    with Recorder(home, crash_hooks=False) as recorder:
        for name, task in TASKS:
            with recorder.run(name) as run, run.span("desk", type="agent", body=task or None):
                run.tool("search", {"q": name}).end(body="found")
            ids.append(run.run_id)
    catch_up(home)
    with open_store(home.store) as store:
        yield Recorded(Debugger(store), ids)


def test_runs_of_the_same_task_are_found_whatever_their_program(recorded: Recorded) -> None:
    assert recorded.numbers(0) == [1, 3]
    assert recorded.numbers(2) == []


def test_tasks_that_only_begin_alike_are_not_the_same(recorded: Recorded) -> None:
    assert recorded.numbers(4) == [6]
    assert recorded.numbers(5) == []


def test_a_run_without_a_task_has_the_runs_of_its_name(recorded: Recorded) -> None:
    assert recorded.numbers(7) == [8]


def test_rows_have_outcome_and_cost(recorded: Recorded) -> None:
    row, _ = recorded.same_task(0)

    assert row["outcome"] == "ok"
    assert {"cost_usd", "duration_ms", "task"} <= row.keys()
