"""Arguments and results that a program changes on their way between model and tool."""

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
    span_named,
    think,
    use,
)
from vestige.home import Home
from vestige.query.checks.tools.relayed_calls import changed_arguments, cut_result, object_result

ROWS = [{"id": number, "name": f"Customer {number} GmbH"} for number in range(20)]


def converse(
    home: Home,
    requested_arguments: Any,
    ran: Any,
    *,
    output: str = "rain",
    sent: str | None = None,
    call_id: str | None = "call_1",
) -> None:
    """Record one tool call: what was requested, what ran, what it returned, what was sent."""
    requested = call(requested_arguments)
    with recording(home) as run:
        think(run, request(), answer(requested))
        use(run, json.dumps(ran), call_id, output=output)
        history = (requested_calls(requested), result(output if sent is None else sent))
        think(run, request(*history), answer(text="It rains."))


@pytest.mark.parametrize("call_id", ["call_1", None], ids=["with a call id", "without"])
def test_a_tool_that_ran_with_another_value_is_found(home: Home, call_id: str | None) -> None:
    requested_arguments, ran = {"city": "Oslo", "days": 84.5}, {"city": "Oslo", "days": 8450}
    converse(home, requested_arguments, ran, output='{"days": 8450}', call_id=call_id)

    (found,) = findings(home, changed_arguments)

    assert (found.kind, found.severity) == ("tool/changed-arguments", "warning")
    assert found.cause == span_named(home, "weather").id
    assert "weather ran with days=8450" in found.message and "requested 84.5" in found.message


@pytest.mark.parametrize(
    ("requested_arguments", "ran"),
    [
        ({"city": "Oslo"}, {"city": "Oslo", "limit": 10}),
        ({"city": "Oslo", "days": "3"}, {"city": " oslo", "days": 3.0}),
        ({"city": "a.txt"}, {"city": "/work/a.txt"}),
        ({"city": "Oslo", "filter": [1, 2]}, {"city": "Oslo", "filter": [1]}),
        ({"city": "Oslo"}, {"place": "Rome"}),
    ],
    ids=["a default", "another form", "an absolute path", "a nested value", "another name"],
)
def test_arguments_that_a_program_completes_are_silent(
    home: Home, requested_arguments: Any, ran: Any
) -> None:
    converse(home, requested_arguments, ran)

    assert findings(home, changed_arguments) == []


def test_a_result_cut_into_malformed_json_is_a_warning(home: Home) -> None:
    full = json.dumps(ROWS)
    converse(home, {"city": "Oslo"}, {"city": "Oslo"}, output=full, sent=full[:200])

    (found,) = findings(home, cut_result)

    assert (found.kind, found.severity) == ("tool/cut-result", "warning")
    assert "ends after 200 characters" in found.message and "malformed JSON" in found.message


def test_a_text_that_ends_at_a_limit_is_a_hint(home: Home) -> None:
    full = "It rains in Oslo today. " * 100
    converse(home, {"city": "Oslo"}, {"city": "Oslo"}, output=full, sent=full[:500])

    (found,) = findings(home, cut_result)

    assert (found.severity, found.evidence[0]) == ("hint", span_named(home, "weather").id)


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        json.dumps(json.dumps(ROWS)),
        json.dumps(ROWS)[:200] + "… (shortened)",
        "20 customers",
        json.dumps(ROWS)[:-20],
    ],
    ids=["full", "another form", "as a string", "with a mark", "a summary", "only the end"],
)
def test_a_result_that_is_whole_or_marked_is_silent(home: Home, sent: str) -> None:
    converse(home, {"city": "Oslo"}, {"city": "Oslo"}, output=json.dumps(ROWS), sent=sent)

    assert findings(home, cut_result) == []


@pytest.mark.parametrize(
    ("sent", "kind", "severity"),
    [
        ("<coroutine object fetch at 0x7f7285e57370>", "tool/not-awaited", "error"),
        ('"<async_generator object a.<locals>.b at 0x7f72>"', "tool/not-awaited", "error"),
        ("<__main__.Order object at 0x7f7285e57370>", "tool/object-result", "warning"),
        ("<function main.<locals>.find at 0x7f7285e57370>", "tool/object-result", "warning"),
        ("<bound method Shop.find of <Shop object at 0x7f>>", None, None),
        ("see <Order object at 0x7f7285e57370> in the log", None, None),
        ("<p>at 0x10</p>", None, None),
    ],
)
def test_an_object_instead_of_a_result_is_found(
    home: Home, sent: str, kind: str | None, severity: str | None
) -> None:
    converse(home, {"city": "Oslo"}, {"city": "Oslo"}, output="x", sent=sent)

    found = findings(home, object_result)

    assert [(each.kind, each.severity) for each in found] == ([(kind, severity)] if kind else [])
    if kind:
        assert found[0].cause == span_named(home, "weather").id
        assert "The result of weather" in found[0].message
