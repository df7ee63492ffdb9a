"""What separates two groups of runs comes first, with counts; the same bytes every time."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

import vestige
from vestige import Recorder
from vestige.collector.loop import catch_up
from vestige.errors import UsageError, VestigeError
from vestige.home import Home
from vestige.query.diff.compare_groups import CompareAnswer, compare_answer
from vestige.query.token_budget import count_tokens
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore


def record_two_groups(home: Home, bad: int = 2, good: int = 3, junk: int = 0) -> None:
    """Bad runs use another model, a fat skill and a tool that fails."""
    with Recorder(home) as recorder:
        for number in range(bad + good):
            is_bad = number < bad
            with recorder.run("bad" if is_bad else "good", attributes={"tier": "free"}) as run:
                run.set_attributes(region="eu" if is_bad else "us", request=f"call_{number}")
                call = run.span("chat", "llm", {"model": "small" if is_bad else "large"})
                call.segments([("persona", "p"), ("skill:web", "w" * (400 if is_bad else 20))])
                call.end()
                if is_bad:
                    run.span("delete", "tool").end(KeyError("x"))
                for other in range(junk):
                    run.span(
                        f"\x1b[2J界{other} {is_bad}\n" * 9, "tool", {f"界{other}": is_bad}
                    ).end()


def compared(home: Home, first: str = "bad", second: str = "good") -> CompareAnswer:
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:

        def ids(name: str) -> Sequence[str]:
            return [run.id for run in reversed(store.list_runs(RunFilter(name=name)))]

        return compare_answer(store, ids(first), ids(second))


def test_what_separates_the_groups_comes_first_with_counts(home: Home) -> None:
    record_two_groups(home)

    answer = compared(home)

    lines = answer.text().splitlines()
    assert lines[0].startswith("A 2 runs (2 ok): ") and lines[1].startswith("B 3 runs (3 ok): ")
    found = {(one.kind, one.what): (one.a, one.b, one.score) for one in answer.found}
    assert found["error", "KeyError in tool delete"] == ("2/2", "0/3", 1)
    assert found["model", "llm model=small"] == ("2/2", "0/3", 1)
    assert found["attribute", "run region=eu"] == ("2/2", "0/3", 1)
    assert found["tool", "delete"] == ("2/2", "0/3", 1)
    assert found["contributor", "skill:web bytes"] == ("~400", "~20", 1)
    assert [one.kind for one in answer.found[:3]] == ["error", "model", "model"]
    assert "These are correlations, not proven causes." in lines
    assert answer.exit_code == 0


def test_what_both_have_and_what_every_run_has_its_own_of_is_not_told(home: Home) -> None:
    """Ids separate any two groups, and mean nothing."""
    record_two_groups(home)

    texts = " ".join(one.what for one in compared(home).found)

    assert "tier" not in texts
    assert "call_" not in texts
    assert "persona" not in texts


def test_groups_must_be_groups_of_runs_and_apart(home: Home) -> None:
    record_two_groups(home)

    with pytest.raises(UsageError, match="in both groups"):
        compared(home, "bad", "bad")
    with pytest.raises(UsageError, match="both groups need a run"):
        compared(home, "bad", "nothing like it")
    with (
        SqliteStore.open(home.store, readonly=True) as store,
        pytest.raises(UsageError, match="run 'zz' not found"),
    ):
        compare_answer(store, ["zz"], ["zz"])


def test_a_group_may_be_a_filter_as_of_list(home: Home) -> None:
    """The same answer as from the ids; terms come as words or as one text."""
    record_two_groups(home)
    with vestige.open(home.root) as debugger:
        listed = {
            name: [run.id for run in debugger.list(f"name:{name}").runs] for name in ("bad", "good")
        }
        by_ids = debugger.compare(listed["bad"], listed["good"])
        by_words = debugger.compare(["model:small", "spans>1"], ["model:large"])
        by_text = debugger.compare(["model:small spans>1"], ["-name:bad"])

    assert by_words.data() == by_text.data() == by_ids.data()


def test_a_filter_takes_the_newest_runs_and_says_that_there_are_more(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is bounded, however many runs there are."""
    record_two_groups(home, bad=3, good=2)
    monkeypatch.setattr("vestige.query.diff.compare_groups.RUNS_MAX", 2)
    with vestige.open(home.root) as debugger:
        newest = [run.id for run in debugger.list("name:bad").runs][:2]
        answer = debugger.compare(["name:bad"], ["name:good"])

    assert answer.data()["a"] == newest
    assert (answer.data()["a_more"], answer.data()["b_more"]) == (True, False)
    assert "A: the newest 2 runs; more may match its filter" in answer.text()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (["is:running"], ["is:ok"], "no run matches 'is:running'"),
        (["is:ok"], ["name:good"], " and 2 other runs are in both groups"),
        (["r1", "is:ok"], ["name:good"], "r1 is a run, and the rest of its group a filter"),
        (["is:odd"], ["name:good"], "filter 'is:odd': invalid term"),
    ],
)
def test_a_filter_that_makes_no_group_says_why(
    home: Home, a: list[str], b: list[str], message: str
) -> None:
    """An empty group, a run in both, ids among terms, a term that is none."""
    record_two_groups(home)
    with (
        vestige.open(home.root) as debugger,
        pytest.raises(VestigeError, match=re.escape(message)) as error,
    ):
        debugger.compare(a, b)

    assert error.value.exit_code == 2


def test_groups_that_are_alike_say_so(home: Home) -> None:
    with Recorder(home) as recorder:
        for _ in range(16):
            recorder.run("same", attributes={"tier": "free"}).end()
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [run.id for run in store.list_runs(RunFilter())]
        answer = compare_answer(store, runs[::2], runs[1::2])

    separations = {(one.kind, one.what) for one in answer.found if one.kind != "run"}
    assert separations == set()


def test_large_and_hostile_groups_stay_within_the_budget(home: Home) -> None:
    """What is cut says how much, and how to see it."""
    record_two_groups(home, junk=60)

    answer = compared(home)

    for budget in (50, 300, 800, 8000):
        text = answer.text(budget)
        assert count_tokens(text) <= budget
        assert "\x1b" not in text
    a, b = ([facts.info.short_id for facts in group] for group in (answer.a, answer.b))
    again = f"vestige compare --budget 3200 {' '.join(a)} -- {' '.join(b)}"
    assert f"more rows: {again}" in answer.text()
    assert answer.text() == compared(home).text()


def test_a_number_as_large_as_there_are_is_compared(home: Home) -> None:
    """Some mean "no limit" by it; two of them add up to more than a float holds."""
    with Recorder(home) as recorder:
        for name, limit in (("bad", 1.7e308), ("good", 5.0)):
            with recorder.run(name) as run:
                for _ in range(2):
                    run.span("search", "tool", {"limit": limit}).end()

    found = {one.what: (one.a, one.b) for one in compared(home).found if one.kind == "number"}

    assert found == {"tool limit": ("~1.7e+308", "~5")}
