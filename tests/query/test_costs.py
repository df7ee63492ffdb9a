"""What a run cost: from the table of prices, or as the program says; unknown stays unknown."""

from __future__ import annotations

import vestige
from vestige.home import Home
from vestige.query.costs import Cost
from vestige.recorder import Recorder

TOKENS = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}


def record(home: Home, *calls: dict[str, object]) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for attributes in calls:
            run.span("chat", type="llm").end(attributes={**TOKENS, **attributes})


def test_known_models_are_priced_and_unknown_ones_named(home: Home) -> None:
    """A sum without some of its parts says so."""
    record(home, {"model": "gpt-4o-mini"}, {"model": "house-model"})
    with vestige.open(home.root) as debugger:
        answer = debugger.overview("r2")

    assert answer.cost is not None and answer.cost.unknown == ("house-model",)
    assert answer.cost.dollars is not None and 0.1 < answer.cost.dollars < 10
    assert "(no price is known for house-model)" in answer.text()


def test_what_the_program_recorded_counts_before_the_table(home: Home) -> None:
    """It knows its contract."""
    record(home, {"model": "gpt-4o-mini", "cost_usd": 0.25}, {"model": "mine", "cost_usd": 0.5})
    with vestige.open(home.root) as debugger:
        answer = debugger.overview("r2")

    assert answer.cost == Cost(0.75, ())
    assert "cost: $0.75" in answer.text()


def test_a_list_tells_money_when_asked(home: Home) -> None:
    """The table takes a moment to load, so not unasked."""
    record(home, {"model": "house-model"})
    record(home, {"model": "mine", "cost_usd": 2})
    with vestige.open(home.root) as debugger:
        plain, priced = debugger.list(), debugger.list(cost=True)

    assert "COST" not in plain.text()
    assert [line.split()[-1] for line in priced.text().splitlines()] == ["COST", "$2.00", "unknown"]
    assert [run["cost_usd"] for run in priced.data()["runs"]] == [2.0, None]
