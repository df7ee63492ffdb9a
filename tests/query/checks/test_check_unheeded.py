"""Errors that an agent passed over, resources that are missing, and work that leads nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.planted_bugs import (
    answer,
    call,
    findings,
    recording,
    request,
    requested_calls,
    result,
    think,
    use,
)
from support.trajectories import RunBuilder, reply, user
from vestige.home import Home
from vestige.query.checks.progress.detours import detour, repeated_code
from vestige.query.checks.tools.ignored_errors import ignored_error, missing_resource

ALL = (ignored_error, missing_resource)
FAILED = "Error: quota of the weather service is used up"


def one_lookup(home: Home, returned: str, final: str, *, again: str | None = None) -> list[Any]:
    """Record an agent that calls a tool, perhaps twice, and answers."""
    results = [returned, *([again] if again is not None else [])]
    messages: list[dict[str, Any]] = []
    with recording(home) as run:
        for number, text in enumerate(results):
            calls = [call({"city": f"Oslo {number}"}, f"call_{number}")]
            think(run, request(*messages), answer(*calls))
            use(run, json.dumps({"city": f"Oslo {number}"}), f"call_{number}", output=text)
            messages += [requested_calls(*calls), result(text, f"call_{number}")]
        think(run, request(*messages), answer(text=final))
    return findings(home, *ALL)


def test_an_error_that_the_answer_passes_over_is_found(home: Home) -> None:
    (found,) = one_lookup(home, FAILED, "It is 7 degrees in Oslo.")

    assert (found.kind, found.severity) == ("error/ignored", "warning")
    assert "quota" in found.message


@pytest.mark.parametrize(
    ("returned", "final", "again"),
    [
        (FAILED, "I could not look it up: the quota is used up.", None),
        (FAILED, "It is 7 degrees in Oslo.", "7 degrees"),
        ("7 degrees", "It is 7 degrees in Oslo.", None),
    ],
    ids=["mentioned", "tried again", "no error"],
)
def test_an_error_that_was_heeded_is_silent(
    home: Home, returned: str, final: str, again: str | None
) -> None:
    assert one_lookup(home, returned, final, again=again) == []


@pytest.mark.parametrize(
    "returned",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'rates.csv'",
        "404 Client Error: Not Found for url: https://example.org/rates",
        "[]",
        "No results found for this query.",
    ],
)
def test_a_missing_resource_that_the_answer_relied_on_is_found(home: Home, returned: str) -> None:
    (found,) = one_lookup(home, returned, "It is 7 degrees in Oslo.")

    assert (found.kind, found.severity) == ("resource/missing", "warning")


def test_a_missing_resource_that_the_answer_mentions_is_a_hint(home: Home) -> None:
    (found,) = one_lookup(home, "[]", "I found no results for Oslo.")

    assert (found.kind, found.severity) == ("resource/missing", "hint")


def test_a_missing_resource_that_was_found_elsewhere_is_silent(home: Home) -> None:
    assert one_lookup(home, "[]", "It is 7 degrees.", again="7 degrees") == []


# --- work that leads nowhere ----------------------------------------------------------------------


def searches(home: Home, *results: str) -> list[Any]:
    messages: list[dict[str, Any]] = []
    with recording(home) as run:
        for number, text in enumerate(results):
            calls = [call({"city": f"Oslo {number}"}, f"call_{number}")]
            think(run, request(*messages), answer(*calls))
            use(run, json.dumps({"city": f"Oslo {number}"}), f"call_{number}", output=text)
            messages += [requested_calls(*calls), result(text, f"call_{number}")]
        think(run, request(*messages), answer(text="It rains."))
    return findings(home, detour)


def test_many_actions_that_return_nothing_new_are_a_detour(home: Home) -> None:
    (found,) = searches(home, "rain", "[]", "rain", "No results found.", "[]", "rain", "[]")

    assert (found.kind, found.severity) == ("detour/nothing-new", "warning")
    assert "6 actions in a row" in found.message


def test_actions_that_learn_something_are_no_detour(home: Home) -> None:
    assert searches(home, "rain", "[]", "snow", "[]", "sun", "[]", "fog", "[]") == []


def code_run(*codes: str) -> list[Any]:
    """Return what is found in a run of an agent whose code fails, step by step."""
    run = RunBuilder()
    agent = run.span("agent", "Coder", input="Plot the rates.")
    for code in codes:
        error = {"error.type": "KeyError", "error.message": "'rate'"}
        step = run.span("step", "Step", parent=agent, status="error", attributes=error)
        run.call(step, [user("Plot the rates.")], reply(f"Let me try.\n```python\n{code}\n```"))
    return list(repeated_code(run.evidence()))


def test_failing_code_that_is_run_again_unchanged_is_found() -> None:
    found = code_run("plot(rates['rate'])", "plot(rates['rate'])")

    assert [each.kind for each in found] == ["repeated-code/unchanged"]
    assert "2 times" in found[0].message


def test_failing_code_with_a_change_of_one_letter_in_many_is_the_same() -> None:
    lines = "\n".join(f"value_{n} = compute(rates, {n})" for n in range(20))

    assert len(code_run(f"{lines}\nplot(a)", f"{lines}\nplot(b)")) == 1


def test_failing_code_that_was_changed_is_silent() -> None:
    assert code_run("plot(rates['rate'])", "plot(rates['Rate'])") == []
