"""Failed runs with the same cause are one group, whatever ids, numbers and paths they have."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import vestige
from vestige import Recorder
from vestige.cli.main import cli
from vestige.home import Home
from vestige.query.groups.failure_groups import Failure, FailureGroup
from vestige.query.groups.failure_signature import Signature, normalize
from vestige.query.groups.groups_answer import describe_group
from vestige.record.finding import Finding

CAUSES = ("rate", "order", "file", "amount", "payment", "loop")


def _raise(cause: str, rng: random.Random) -> None:
    number, identity = rng.randint(1, 999), f"{rng.getrandbits(64):016x}"
    if cause == "rate":
        raise ConnectionError(f"503 from rates-{number}.internal (request req_{identity})")
    if cause == "order":
        raise KeyError(f"order A-{number} not found in /srv/data/{identity}/orders.db")
    if cause == "file":
        raise FileNotFoundError(2, "No such file or directory", f"/tmp/job-{identity}/in.csv")
    if cause == "amount":
        raise ValueError(f"amount -{number} must be positive")
    raise TimeoutError(f"https://api.example/pay?id={identity} timed out after {number} s")


def _record_run(recorder: Recorder, cause: str | None, rng: random.Random) -> str:
    """Record a run, and return its id."""
    attributes = {"ticket": rng.randint(1, 10**6), "region": "eu" if cause == "rate" else "us"}
    try:
        with recorder.run("desk", attributes=attributes) as run:
            run.span("chat", "llm", {"model": "m"}).end()
            for _ in range(6 if cause == "loop" else 0):
                run.span("poll", "tool", body=f'{{"job": {attributes["ticket"]}}}').end(body="wait")
            if cause not in (None, "loop"):
                with run.span(f"do_{cause}", "tool"):
                    _raise(cause, rng)
    except (OSError, LookupError, ValueError):
        pass
    return run.run_id


@pytest.fixture
def planted(home: Home) -> dict[str, str]:
    """Record runs of six causes and good ones, shuffled; return the causes by run id."""
    rng = random.Random(20)
    planned: list[str | None] = [*CAUSES * 9, *[None] * 20]
    rng.shuffle(planned)
    with Recorder(home) as recorder:
        causes = {_record_run(recorder, cause, rng): cause for cause in planned}
    with vestige.open(home) as debugger:
        runs = debugger.list(limit=100).runs
    return {run.short_id: cause for run in runs if (cause := causes[run.id]) is not None}


def _groups(home: Home, *options: str) -> dict[str, object]:
    result = CliRunner().invoke(cli, ["groups", "--home", str(home.root), "--json", *options])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


def test_answers_without_time_continue_until_all_runs_are_examined(
    home: Home, planted: dict[str, str]
) -> None:
    with vestige.open(home) as debugger:
        first = debugger.groups(seconds=0).data()
        second = debugger.groups(seconds=0).data()
        text = debugger.groups(seconds=0).text()
        for _ in range(first["unexamined"]):
            last = debugger.groups(seconds=0).data()
        unlimited = debugger.groups().data()

    assert (first["examined"], first["unexamined"]) == (1, len(CAUSES) * 9 + 20 - 1)
    assert second["unexamined"] == first["unexamined"] - 1
    assert "runs not examined yet" in text
    assert last == unlimited
    assert unlimited["unexamined"] == 0


def test_six_planted_causes_are_six_groups(home: Home, planted: dict[str, str]) -> None:
    """Ids, numbers, paths and URLs differ in every run. The answer is the same twice."""
    found = _groups(home)

    groups = [Counter(planted[run] for run in group["runs"]) for group in found["groups"]]
    assert sorted(cause for group in groups for cause in group) == sorted(CAUSES)
    assert all(sum(group.values()) == 9 for group in groups)
    assert _groups(home) == found


@pytest.mark.slow
def test_two_hundred_runs_of_six_causes_are_six_groups(home: Home) -> None:
    """Causes occur with different frequency. Purity is the share of runs in the right group."""
    rng = random.Random(7)
    weights = (60, 45, 35, 25, 20, 15)
    planned = [cause for cause, n in zip(CAUSES, weights, strict=True) for _ in range(n)]
    rng.shuffle(planned)
    with Recorder(home) as recorder:
        causes = {_record_run(recorder, cause, rng): cause for cause in planned}
    with vestige.open(home) as debugger:
        listed = debugger.list(limit=300).runs
    planted = {run.short_id: causes[run.id] for run in listed}

    found = _groups(home)

    groups = [Counter(planted[run] for run in group["runs"]) for group in found["groups"]]
    pure = sum(max(group.values()) for group in groups)
    shown = sum(sum(group.values()) for group in groups)
    assert len(groups) == 6 and len({max(group, key=group.__getitem__) for group in groups}) == 6
    assert found["examined"] == 200 and pure / shown >= 0.95
    assert [group["count"] for group in found["groups"]] == list(weights)
    assert _groups(home) == found


def test_words_of_a_filter_match_as_in_the_list_of_runs(home: Home) -> None:
    with Recorder(home) as recorder:
        for reason in ("the provider was overloaded", "no such order"):
            with pytest.raises(ValueError), recorder.run("desk"):
                raise ValueError(reason)

    with vestige.open(home) as debugger:
        listed = debugger.list("overloaded").runs
        found = debugger.groups("overloaded").data()
        quoted = debugger.groups('"was overloaded"').data()

    assert len(listed) == found["examined"] == quoted["examined"] == 1
    assert [group["runs"] for group in found["groups"]] == [[run.short_id for run in listed]]


def test_replays_and_forks_do_not_count(home: Home) -> None:
    """They repeat a failure on purpose, and would make it look frequent."""
    with Recorder(home) as recorder:
        for attributes in ({}, {"replay.run": "x"}, {"replay.run": "x", "replay.span": "y"}):
            with pytest.raises(ValueError), recorder.run("desk", attributes=attributes):
                raise ValueError("amount -3 must be positive")

    found = _groups(home)

    assert found["examined"] == 1
    assert [group["count"] for group in found["groups"]] == [1]


def test_a_group_shows_when_it_occurred_and_what_sets_it_apart(
    home: Home, planted: dict[str, str]
) -> None:
    (group,) = [group for group in _groups(home)["groups"] if group["subject"] == "tool do_rate"]

    assert group["error"] == "ConnectionError" and group["place"].endswith(" in _raise")
    assert sum(group["trend"]) == group["count"] == 9
    assert group["first_ns"] < group["last_ns"] and planted[group["newest"]] == "rate"
    assert {"kind": "attribute", "what": "run region=eu"}.items() <= group["differences"][0].items()


def test_runs_like_one_run_are_its_group(home: Home, planted: dict[str, str]) -> None:
    run = next(run for run, cause in planted.items() if cause == "amount")

    (group,) = _groups(home, "--like", run)["groups"]

    assert {planted[each] for each in group["runs"]} == {"amount"}


def test_the_text_names_the_cause_and_the_next_command(home: Home, planted: dict[str, str]) -> None:
    with vestige.open(home) as debugger:
        text = str(debugger.groups())
        page = str(debugger.groups(after=5))

    assert text.startswith("6 groups: 54 of 74 runs failed")
    assert "ValueError: amount … must be positive" in text
    assert "See: vestige check r" in text and page.count("newest: r") == 1


def test_a_store_without_failures_has_no_groups(home: Home) -> None:
    with Recorder(home) as recorder, recorder.run("desk") as run:
        run.log.info("done")

    assert _groups(home)["groups"] == []


@given(st.text(max_size=200), st.integers(0, 10**12), st.uuids())
def test_volatile_values_do_not_change_a_text(text: str, number: int, identity: object) -> None:
    """Only the placeholders are left, and a second pass changes nothing."""
    words = " ".join(text.split())

    once = normalize(f"{words} failed at {number} for {identity} in /srv/{number}/x.py")

    assert once.endswith("failed at <value> for <value> in <path>")
    assert normalize(once) == once


def test_the_title_of_a_group_has_no_ids_of_one_run(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder:
        recorder.run("desk").end()
    with vestige.open(home.root) as debugger:
        (run,) = debugger.list().runs
    message = "llm messages.create (r7.s3) called book, but it never ran."
    finding = Finding(
        check="never-ran",
        severity="warning",
        confidence=0.9,
        basis="measured",
        kind="never-ran",
        message=message,
        cause=None,
    )
    signature = Signature("never-ran", "llm", "", "", "")
    group = FailureGroup([Failure(run, signature, finding, None, None)])

    assert describe_group(group) == "llm messages.create called book, but it never ran."
