"""The debugger over a bundle of a suite: every verb, failed cases first, the agent behind a failed
case.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.commands import vestige
from support.pytest_suites import make_project, only_bundle, read_events, run_pytest
from vestige.artifacts import SuiteRecorder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty cases; two of them failed, late."""
    with SuiteRecorder(tmp_path_factory.mktemp("art"), "shop", environment={}) as suite:
        for number in range(20):
            with suite.case(f"case {number:02}") as case:
                case.check(number not in (12, 17), f"sum {number}")
                case.write("out.txt", f"refused {number}")
    return suite.path


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "{}"],
        ["show", "{}", "--json"],
        ["overview", "{}"],
        ["check", "{}"],
        ["grep", "refused", "{}"],
        ["list", "--home", "{}"],
        ["stats", "--home", "{}"],
        ["span", "r1.s14", "--home", "{}"],
        ["why", "r1.s14", "--home", "{}"],
        ["diff", "{}", "{}"],
        ["sql", "--on", "{}", "SELECT count(*) FROM spans"],
        ["validate", "{}"],
    ],
)
def test_every_verb_takes_a_bundle_of_a_suite(bundle: Path, arguments: list[str]) -> None:
    result = vestige(*(each.format(bundle) for each in arguments))

    assert result.exit_code in (0, 1), result.stderr
    assert result.stdout


@pytest.mark.parametrize("verb", ["show", "overview"])
def test_failed_cases_come_first(bundle: Path, verb: str) -> None:
    """Before what went well, each with its reason and the id to go on with."""
    output = vestige(verb, bundle).stdout
    lines = output.splitlines()
    at = lines.index("failed cases (2 of 20):")

    assert "case 12: sum 12" in lines[at + 1]
    assert "case 17: sum 17" in lines[at + 2]
    assert "case 00" not in "\n".join(lines[:at])
    assert "out.txt" in vestige("show", bundle, "--no-fold").stdout


def test_a_diff_of_two_bundles_names_no_id_that_only_it_knows(tmp_path: Path) -> None:
    """More of it is asked for with the same paths; to go on with spans, both must be taken in."""
    paths = []
    for shift in (0, 7):
        with SuiteRecorder(tmp_path, "shop", environment={}) as suite:
            for number in range(60):
                with suite.case(f"case {(number + shift) % 60}") as case:
                    case.check(number != shift, f"sum {number}")
        paths.append(suite.path)
    result = vestige("diff", *paths, "--budget", "200")
    more = result.stdout.splitlines()[-1]

    assert "next:" not in result.stdout
    assert f"vestige diff {paths[0]} {paths[1]} --budget" in more
    assert vestige(*more.partition(": vestige ")[2].split()).exit_code == 1
    assert f"vestige import {paths[0]} {paths[1]}" in result.stderr


def test_a_suite_in_which_all_is_well_tells_of_no_failures(tmp_path: Path) -> None:
    with SuiteRecorder(tmp_path, "shop", environment={}) as suite, suite.case("ok") as case:
        case.passed()

    assert "failed cases" not in vestige("show", suite.path).stdout


AGENT = """
    import pytest
    import vestige

    def test_ok(): pass

    def test_agent():
        with vestige.traced_run("shopper") as run:
            for _ in range(8):
                run.child("search", type="tool", body='{"q": "shoes"}').end(body="none")
        assert 0, "no shoes"

    def pay(sum): assert sum < 0, "not paid"

    @pytest.mark.parametrize("sum", [7, 8])
    def test_pays(sum): pay(sum)

    @pytest.fixture
    def database(): raise RuntimeError("no database")

    def test_stores(database): pass
"""


@pytest.mark.slow
def test_the_agent_that_a_failed_case_ran_opens_from_it(tmp_path: Path) -> None:
    """The case's span in the recorded run names the agent's run, and that one opens by its short
    id.
    """
    project = make_project(tmp_path / "shop", AGENT)
    done = run_pytest(project, "--vestige-bundle", "art")
    home = tmp_path / "home"
    events = read_events(only_bundle(project / "art"))
    run_id = events[0]["run_id"]
    failed = next(event["case"] for event in events if event["kind"] == "assert_fail")
    case = next(
        event for event in events if event["kind"] == "case_start" and event["case"] == failed
    )
    suite = json.loads(vestige("show", run_id, "--home", home, "--json").stdout)
    checked, why = (vestige(verb, run_id, "--home", home).stdout for verb in ("check", "why"))
    found = json.loads(vestige("check", run_id, "--home", home, "--json").stdout)["findings"]
    of_bundle = vestige("check", only_bundle(project / "art")).stdout
    answer = vestige("span", case["span_id"], "--home", home).stdout
    link = next(line for line in answer.splitlines() if line.startswith("linked from:"))
    agent_run = link.split()[2].partition(".")[0]
    agent = vestige("show", agent_run, "--home", home).stdout
    shutil.rmtree(home)

    assert suite["run"]["outcome"] == "error"
    assert "shopper (started by)" in link
    assert "tool search" in agent
    assert f"why they failed: vestige check {run_id}" in done.stdout
    for answer in (checked, why):
        assert "test_it.py::test_agent (1 of 5) failed: AssertionError: no shoes" in answer
        assert "at test_it.py:11 in test_agent" in answer
        assert f"inside: [warning] loop/exact at {agent_run}.s" in answer
    assert [each["inside"]["check"] for each in found if "inside" in each] == ["loop"]
    for answer, place in ((checked, "test_it.py:13 in pay"), (of_bundle, "test_it.py:13")):
        assert (
            "test_it.py::test_pays[7] and 1 more test (2 of 5) failed: AssertionError: not paid"
            in answer
        )
        assert f"at {place}." in answer
        assert "failed-case/setup" in answer and "setup: RuntimeError: no database" in answer
