"""What a run cost: from the table of prices, or as the program says; unknown stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

import vestige
from vestige.formats.openwop.cost_metrics import total
from vestige.home import Home
from vestige.providers.chat_types import Usage
from vestige.providers.prices import price
from vestige.query.debugger import Debugger
from vestige.query.stats.costs import Cost, span_costs
from vestige.record.types import SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import load_run_to_write

TOKENS = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}


def record_calls(home: Home, *calls: dict[str, object]) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for attributes in calls:
            run.span("chat", type="llm").end(attributes={**TOKENS, **attributes})


def test_known_models_are_priced_and_unknown_ones_named(home: Home) -> None:
    """A sum without some of its parts says so."""
    record_calls(home, {"model": "gpt-4o-mini"}, {"model": "house-model"})
    with vestige.open(home.root) as debugger:
        answer = debugger.overview("r2")

    assert answer.cost_usd is not None and answer.cost_usd.unknown == ("house-model",)
    assert answer.cost_usd.dollars is not None and 0.1 < answer.cost_usd.dollars < 10
    assert "(no price for house-model)" in answer.text()


HOUSE_PRICE = '[prices."house-model"]\ninput = 2\noutput = 10.0\ncache_read = 0.5\n'


def priced(home: Home, text: str = HOUSE_PRICE) -> None:
    home.make()
    home.config.write_text(text)


def test_a_model_has_the_price_that_config_toml_gives_it_wherever_costs_are_told(
    home: Home,
) -> None:
    """Dollars for a million tokens: in lists, overviews, sums, trends, spans, diffs and exports."""
    record_calls(home, {"model": "house-model"})
    record_calls(home, {"model": "house-model"})
    priced(home)
    with vestige.open(home.root) as debugger:
        runs = debugger.list(cost=True)
        filtered = debugger.list("cost>11.9 cost<12.1")
        overview = debugger.overview(runs.runs[0].short_id)
        outline = debugger.outline(runs.runs[0].short_id).data()
        stats = debugger.stats(by="model")
        trends = debugger.trends(since="1d").data()
        span = debugger.span(f"{runs.runs[0].short_id}.s2").data()
        diff = debugger.diff(runs.runs[0].short_id, runs.runs[1].short_id).data()
        bundle = load_run_to_write(debugger.store, runs.runs[0].id)
    costs = runs.costs or {}
    deltas = {each["name"]: each["a"] for each in diff["deltas"]}

    assert [costs[run.id] for run in runs.runs] == [Cost(12.0, ())] * 2
    assert len(filtered.runs) == 2
    assert overview.cost_usd == Cost(12.0, ()) and "no price" not in overview.text()
    assert outline["run"]["cost_usd"] == 12.0
    assert "$24.00" in stats.text() and "no price" not in stats.text()
    assert trends["buckets"][-1]["cost_usd"] == 24.0
    assert span["cost_usd"] == deltas["cost_usd"] == 12.0
    assert total(bundle.run.spans, bundle.prices)["usd"] == 12.0


def test_an_own_price_counts_before_the_table_and_after_what_the_program_says(home: Home) -> None:
    """Cached tokens have their own price, or that of input."""
    table = '[prices."gpt-4o-mini"]\ninput = 1.0\noutput = 0\ncache_read = 0.1\n'
    priced(home, table)
    record_calls(
        home, {"model": "gpt-4o-mini", "cache_read_tokens": 400_000, "cache_write_tokens": 100_000}
    )
    record_calls(home, {"model": "gpt-4o-mini", "cost_usd": 0.25})
    with vestige.open(home.root) as debugger:
        second, first = (debugger.overview(run.short_id).cost_usd for run in debugger.list().runs)

    assert first is not None and first.dollars == pytest.approx(0.5 + 0.04 + 0.1)
    assert second == Cost(0.25, ())


def test_a_changed_price_is_read_by_who_has_the_home_open(home: Home) -> None:
    """A server is not restarted for it."""
    record_calls(home, {"model": "house-model"})
    with vestige.open(home.root) as debugger:
        before = debugger.overview("r2").cost_usd
        priced(home)
        after = debugger.overview("r2").cost_usd

    assert before == Cost(None, ("house-model",))
    assert after == Cost(12.0, ())


def test_what_the_program_recorded_counts_before_the_table(home: Home) -> None:
    """It knows its contract."""
    record_calls(
        home, {"model": "gpt-4o-mini", "cost_usd": 0.25}, {"model": "mine", "cost_usd": 0.5}
    )
    with vestige.open(home.root) as debugger:
        answer = debugger.overview("r2")

    assert answer.cost_usd == Cost(0.75, ())
    assert "cost: $0.75" in answer.text()


def test_calls_beside_one_with_a_recorded_cost_are_priced(home: Home) -> None:
    """One recorded cost does not make the other calls to the model free."""
    record_calls(home, {"model": "gpt-4o", "cost_usd": 0.25}, {"model": "gpt-4o"})
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    with vestige.open(home.root) as debugger:
        cost = debugger.overview("r2").cost_usd
        run = debugger.store.load_run(debugger.resolve("r2", "run").run.id)

    assert cost == Cost(0.25 + (price("gpt-4o", None, usage) or 0.0), ())
    assert span_costs([span for span in run.spans if span.type == "llm"]) == cost


def test_a_call_within_a_call_costs_once(home: Home) -> None:
    """A client's own span, and the wire's in it: the outer counts if it has usage."""
    attributes = {"model": "gpt-4o", "input_tokens": 1000, "output_tokens": 100}
    with Recorder(home, last_words=False) as recorder:
        for outer in (attributes, {**attributes, "cost_usd": 2.0}, {"model": "gpt-4o"}):
            with (
                recorder.run("agent") as run,
                run.span("chat", type="llm", attributes=outer) as span,
            ):
                span.child("wire", type="llm").end(attributes=attributes)
    with vestige.open(home.root) as debugger:
        costs = [debugger.overview(run).cost_usd for run in ("r2", "r3", "r4")]

    assert [cost.dollars if cost else None for cost in costs] == [0.0035, 2.0, 0.0035]


def test_calls_without_a_recorded_cost_are_priced_beside_those_that_have_one(home: Home) -> None:
    """One call that says what it cost does not make the others of its model free."""
    record_calls(home, {"model": "gpt-4o-mini"}, {"model": "gpt-4o-mini"})
    record_calls(
        home,
        {"model": "gpt-4o-mini"},
        {"model": "gpt-4o-mini"},
        {"model": "gpt-4o-mini", "cost_usd": 0.25},
    )
    with vestige.open(home.root) as debugger:
        runs = debugger.list(cost=True).data()["runs"]
        mixed, plain = (run["cost_usd"] for run in runs)
        pair = (run["short_id"] for run in reversed(runs))
        deltas = {each["name"]: each["b"] for each in debugger.diff(*pair).data()["deltas"]}

    assert mixed == pytest.approx(plain + 0.25)
    assert deltas["cost_usd"] == pytest.approx(mixed)


def test_a_call_inside_one_that_says_its_cost_is_not_priced_again(home: Home) -> None:
    """A client's own span and the wire's in it are one call."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        outer = run.span("chat", type="llm")
        outer.span("POST", type="llm").end(attributes={**TOKENS, "model": "gpt-4o-mini"})
        outer.end(attributes={"model": "gpt-4o-mini", "cost_usd": 0.25})
    with vestige.open(home.root) as debugger:
        listed = debugger.list(cost=True).data()["runs"][0]["cost_usd"]
        deltas = {each["name"]: each["b"] for each in debugger.diff("r1", "r2").data()["deltas"]}

    assert (listed, deltas["cost_usd"]) == (0.25, 0.25)


def test_a_list_tells_money_when_asked(home: Home) -> None:
    """The table takes a moment to load, so not unasked."""
    record_calls(home, {"model": "house-model"})
    record_calls(home, {"model": "mine", "cost_usd": 2})
    with vestige.open(home.root) as debugger:
        plain, priced = debugger.list(), debugger.list(cost=True)

    assert "COST" not in plain.text()
    assert [line.split()[-1] for line in priced.text().splitlines()] == ["COST", "$2.00", "unknown"]
    assert [run["cost_usd"] for run in priced.data()["runs"]] == [2.0, None]


def test_one_run_with_absurd_numbers_hides_no_other(home: Home) -> None:
    """A sum that is more than a database holds still gets an answer."""
    absurd = {"model": "gpt-4o-mini", "input_tokens": 2**62, "output_tokens": 1}
    record_calls(home, absurd, absurd, absurd, {"model": "mine", "cost_usd": 2**62})
    record_calls(home, {"model": "mine", "cost_usd": 2})
    with Recorder(home, last_words=False) as recorder, recorder.run("agent", "talk") as run:
        for _ in range(4):
            run.span("chat", type="llm").end(attributes={"model": "m", "cost_usd": 2**62, **TOKENS})
    with vestige.open(home.root) as debugger:
        priced = debugger.list(cost=True, group="conversation")
        others = [debugger.stats(), debugger.trends(by="hour"), debugger.trends(by="day")]

    assert [run["cost_usd"] for run in priced.data()["runs"]][1] == 2.0
    assert all(answer.text() for answer in others)


def test_durations_add_up_to_more_than_a_number_of_the_database(tmp_path: Path) -> None:
    """Each of them is within its bounds."""
    day_ns, run = 86_400 * 10**9, "3d1957bd-0000-4000-8000-000000000001"
    with SqliteStore.open(tmp_path / "store.db") as store:
        for day in range(3):
            at_ns, span = 20_000 * day_ns + day * day_ns, f"tool{day}"
            store.append(
                [
                    SpanOpen(1, "a" * 16, 2 * day + 1, at_ns, run, span, "agent", "tool", "search"),
                    SpanClose(1, "a" * 16, 2 * day + 2, at_ns, run, span, "ok", 2**62),
                ]
            )
        answer = Debugger(store).stats()

    assert "search      3" in answer.text()
