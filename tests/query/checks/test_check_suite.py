"""Checks over a test suite: its failed cases, and what is inside of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.planted_bugs import all_findings, evidence_of, findings, recording, span_named
from vestige.emit.logger import Logger
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks.process.failed_recorded_tests import failed_case
from vestige.query.failures.split_by_test_case import split_by_case

STACK = """Traceback (most recent call last):
  File "/work/tests/test_shop.py", line 7, in {test}
    assert buy({value}) == 3
  File "/work/shop.py", line {line}, in buy
    raise KeyError({value})
  File "/usr/lib/python3.11/site-packages/lib.py", line 2, in get
    raise KeyError({value})
KeyError: {value}
"""


def case(
    run: Span,
    name: str,
    *,
    outcome: str = "pass",
    inside: Callable[[Span], None] | None = None,
    **more: str,
) -> str:
    """A test of a suite, as the pytest plugin records it."""
    with run.span(name, type="test") as span:
        if inside is not None:
            inside(span)
        attributes = {"outcome": outcome, **{f"error.{key}": value for key, value in more.items()}}
        span.end(attributes=attributes, status="ok" if outcome in ("pass", "skip") else "error")
    return span.id


def same_call_again_and_again(span: Span) -> None:
    for _ in range(8):
        call_once(span)


def call_once(span: Span) -> None:
    span.span("search", type="tool", body='{"q": "shoes"}').end(body="none")


def test_cases_that_fail_at_one_place_are_one_finding(home: Home) -> None:
    """Whatever the values; with the place in the program's own code, not in a library."""
    with recording(home) as run:
        case(run, "test_ok")
        first, second = (
            case(
                run,
                f"test_{number}",
                outcome="fail",
                message=f"KeyError: {number}",
                stack=STACK.format(test=f"test_{number}", value=number, line=12),
            )
            for number in (1, 2)
        )
        other = case(
            run,
            "test_3",
            outcome="fail",
            message="KeyError: 3",
            stack=STACK.format(test="test_3", value=3, line=20),
        )
        case(run, "test_skipped", outcome="skip", message="xfail: known")
    found = findings(home, failed_case)

    assert [(each.cause, each.evidence) for each in found] == [
        (first, [first, second]),
        (other, [other]),
    ]
    assert (
        found[0].message
        == "test_1 and 1 more test (2 of 5) failed: KeyError: 1 at shop.py:12 in buy."
    )
    assert found[1].message == "test_3 (1 of 5) failed: KeyError: 3 at shop.py:20 in buy."
    assert {each.severity for each in found} == {"error"}


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        (["assert 1 == 2", "assert 3 == 4"], 1),
        (["no shoes of size 7", "no shoes of size 9"], 1),
        (["setup: RuntimeError: no database", "RuntimeError: no database"], 2),
        (["", ""], 1),
    ],
)
def test_without_a_place_the_message_decides(home: Home, messages: list[str], count: int) -> None:
    """Numbers and quoted texts in it aside."""
    with recording(home) as run:
        for number, message in enumerate(messages):
            case(run, f"test_{number}", outcome="fail", message=message)

    assert len(findings(home, failed_case)) == count


def test_of_many_ways_to_fail_the_rest_is_counted(home: Home) -> None:
    """The most frequent first; no case is left out in silence."""
    with recording(home) as run:
        for number in range(25):
            case(run, f"test_{number}", outcome="fail", message="abcdefghijklmnopqrstuvwxy"[number])
        case(run, "test_often", outcome="fail", message="y")
    found = findings(home, failed_case)

    assert len(found) == 21
    assert found[0].message == "test_24 and 1 more test (2 of 26) failed: y."
    assert found[-1].message == "5 more tests (5 of 26) failed in other ways."


def test_of_reruns_the_last_one_counts_and_one_that_was_killed_failed(home: Home) -> None:
    """A case that never ended has no outcome of its own."""
    with recording(home) as run:
        case(run, "test_flaky", outcome="fail", message="once")
        case(run, "test_flaky")
        # By the component of the plugin: it has no outcome, and it is not a verifier of an agent.
        killed = Logger(run._emitter, "pytest", run).span("test_hangs", type="test")
        killed.end(status="interrupted")
        run.span("verify", type="test").end(status="error")
    found = findings(home, failed_case)

    assert [(each.cause, each.kind) for each in found] == [(killed.id, "failed-case/interrupted")]
    assert found[0].message == "test_hangs (1 of 2) did not finish."


def test_each_failed_case_is_examined_by_itself(home: Home) -> None:
    """What a failed case does again and again is a loop; what each of many cases does once is none;
    and what a case did that went well says nothing about the suite."""
    with recording(home) as run:
        case(run, "test_fine", inside=same_call_again_and_again)
        for number in range(8):
            case(run, f"test_{number}", outcome="fail", message=f"at {number}", inside=call_once)

    assert {each.check for each in all_findings(home)} == {"failed-case"}


def test_a_loop_inside_a_failed_case_is_found(home: Home) -> None:
    with recording(home) as run:
        case(
            run, "test_loops", outcome="fail", message="no shoes", inside=same_call_again_and_again
        )
    found = {each.check: each for each in all_findings(home)}
    with evidence_of(home) as evidence:
        parts = split_by_case(evidence)
        inside = {span.id for span in parts[1].run.spans}

    assert {"failed-case", "loop"} <= found.keys()
    assert found["loop"].cause in inside
    assert span_named(home, "test_loops").id in inside
    assert [span.name for span in parts[0].run.spans] == ["agent"]
