"""Loops of any period, the same error again, retry storms."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from types import FrameType
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
from vestige.home import Home
from vestige.query.checks.progress import loops, repetition
from vestige.query.checks.progress.repetition import find_repeats


def test_equal_calls_of_different_conversations_are_not_a_loop(home: Home) -> None:
    """A service answers many users in one run; each asks for the same rate once."""
    with recording(home) as run:
        for user in range(4):
            opening = f"refund order {user}"
            think(run, request(text=opening), answer(call({"to": "EUR"}, f"c{user}")))
            history = [requested_calls(call({"to": "EUR"}, f"c{user}")), result("1.1", f"c{user}")]
            think(run, request(*history, text=opening), answer(text="done"))

    assert findings(home, loops.loop) == []


def test_equal_calls_of_agents_at_the_same_time_are_not_a_loop(home: Home) -> None:
    """A pool answers four users at once; the tools are recorded, in an order of chance."""
    users = [f"refund order {user}" for user in range(4)]
    with recording(home) as run:
        for user, opening in enumerate(users):
            think(run, request(text=opening), answer(call({"to": "EUR"}, f"c{user}")))
        for user in range(4):
            use(run, '{"to": "EUR"}', f"c{user}", output="1.1")
        for user, opening in enumerate(users):
            history = [requested_calls(call({"to": "EUR"}, f"c{user}")), result("1.1", f"c{user}")]
            think(run, request(*history, text=opening), answer(text="done"))

    assert findings(home, loops.loop) == []


def test_equal_calls_for_one_question_after_the_other_are_not_a_loop(home: Home) -> None:
    with recording(home) as run:
        for user in range(4):
            opening = f"refund order {user}"
            think(run, request(text=opening), answer(call({"to": "EUR"}, f"c{user}")))
            use(run, '{"to": "EUR"}', f"c{user}", output="1.1")
            history = [requested_calls(call({"to": "EUR"}, f"c{user}")), result("1.1", f"c{user}")]
            think(run, request(*history, text=opening), answer(text="done"))

    assert findings(home, loops.loop) == []


def test_a_loop_of_one_of_two_agents_at_the_same_time_is_found(home: Home) -> None:
    with recording(home) as run:
        history: dict[str, list[Any]] = {"clerk": [], "writer": []}
        for turn in range(3):
            for name, messages in history.items():
                call_id = f"{name}-{turn}"
                arguments = {"city": "Oslo"} if name == "clerk" else {"city": f"Rome {turn}"}
                requested = call(arguments, call_id)
                think(run, request(*messages, text=f"a task of {name}"), answer(requested))
                use(run, json.dumps(arguments), call_id)
                messages += [requested_calls(requested), result("rain", call_id)]

    (found,) = findings(home, loops.loop)

    assert (found.kind, len(found.evidence)) == ("loop/exact", 3)


def test_the_same_call_three_times_is_a_loop_and_its_first_span_the_cause(home: Home) -> None:
    with recording(home) as run:
        use(run, '{"city": "Rome"}')
        spans = [
            use(run, body) for body in ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a":1,"b":2}')
        ]

    (found,) = findings(home, loops.loop)

    assert (found.kind, found.severity, found.cause) == ("loop/exact", "warning", spans[0].id)
    assert found.evidence == [span.id for span in spans]
    assert "3 times" in found.message and found.command.startswith("vestige span ")


@pytest.mark.parametrize("period", [2, 3, 5])
def test_a_cycle_is_found_whatever_its_period(home: Home, period: int) -> None:
    with recording(home) as run:
        use(run, '{"city": "before"}')
        spans = [
            use(run, f'{{"n": {n % period}}}', name=f"t{n % period}") for n in range(3 * period)
        ]

    (found,) = findings(home, loops.loop)

    assert (found.kind, found.cause) == ("loop/cyclic", spans[0].id)
    assert "called 3 times in a row" in found.message


def test_other_arguments_are_progress(home: Home) -> None:
    with recording(home) as run:
        for page in range(9):
            use(run, f'{{"page": {page}}}')
        use(run, '{"page": 8}')

    assert findings(home, loops.loop) == []


def test_a_call_whose_result_changes_may_be_polling(home: Home) -> None:
    with recording(home) as run:
        for n in range(4):
            use(run, "{}", output=f"{n} of 4 done")

    (found,) = findings(home, loops.loop)

    assert (found.severity, found.basis) == ("hint", "hypothesis")


def test_without_recorded_arguments_a_loop_is_a_hint(home: Home) -> None:
    """Many tracers leave contents out: five searches may be five different ones."""
    with recording(home) as run:
        for n in range(5):
            run.child("search", "tool", {"tool_call_id": f"call_{n}"}).end()

    (found,) = findings(home, loops.loop)

    assert (found.severity, found.basis) == ("hint", "hypothesis")
    assert "arguments not recorded" in found.message


def test_arguments_kept_as_attributes_are_arguments(home: Home) -> None:
    with recording(home) as run:
        for n in range(5):
            run.child("search", "tool", {"q": f"x{n}"}).end(body="ok")

    assert findings(home, loops.loop) == []


def test_a_loop_shows_in_what_the_model_asks_for_where_tools_are_not_recorded(home: Home) -> None:
    with recording(home) as run:
        spans = [think(run, request(), answer(call({"city": "Oslo"}, f"c{n}"))) for n in range(3)]

    (found,) = findings(home, loops.loop)

    assert found.cause == spans[0].id


@pytest.mark.parametrize(
    ("results", "severity", "message"),
    [
        (["none", "none", "none"], "warning", "same arguments and results"),
        (["1 of 3", "2 of 3", "3 of 3"], "hint", "results differ"),
    ],
)
def test_what_the_tools_gave_stands_in_the_next_request(
    home: Home, results: list[str], severity: str, message: str
) -> None:
    """A model's own answers always differ, by their ids: they do not tell a loop from polling."""
    history: list[dict[str, Any]] = []
    with recording(home) as run:
        for n, gave in enumerate([*results, ""]):
            made = call({"city": "Oslo"}, f"c{n}")
            think(run, request(*history), answer(made))
            history += [requested_calls(made), result(gave, f"c{n}")]

    (found,) = findings(home, loops.loop)

    assert found.severity == severity
    assert found.message.startswith("weather called 4 times in a row")
    assert message in found.message


def test_the_same_error_three_times(home: Home) -> None:
    with recording(home) as run:
        spans = [use(run, f'{{"n": {n}}}', error=ValueError("no such city")) for n in range(3)]
        use(run, error=ValueError("another"))
        use(run, error=ValueError("and another"))

    (found,) = findings(home, loops.repeated_tool_error)

    assert found.cause == spans[0].id
    assert found.evidence == [span.id for span in spans]
    assert "3 times" in found.message and "no such city" in found.message


def test_a_loop_of_one_error_is_only_reported_as_repeated_error(home: Home) -> None:
    with recording(home) as run:
        for _ in range(4):
            use(run, '{"n": 1}', error=ValueError("no such city"))

    assert findings(home, loops.loop) == []
    assert len(findings(home, loops.repeated_tool_error)) == 1


def test_an_error_about_arguments_is_the_fault_of_the_model_that_repeated_it(home: Home) -> None:
    requesters = []
    with recording(home) as run:
        for n in range(3):
            made = call({"town": "Oslo"}, f"c{n}")
            requesters.append(think(run, request(), answer(made)))
            error = TypeError("weather() got an unexpected keyword argument 'town'")
            use(run, '{"town": "Oslo"}', call_id=f"c{n}", error=error)

    (found,) = findings(home, loops.repeated_tool_error)

    assert found.cause == requesters[0].id


def test_different_errors_are_no_repetition(home: Home) -> None:
    with recording(home) as run:
        for n in range(4):
            use(run, error=ValueError(f"error {n}"))

    assert findings(home, loops.repeated_tool_error) == []


def test_the_same_request_failing_again_and_again_is_a_storm(home: Home) -> None:
    with recording(home) as run:
        spans = [run.child("chat", "llm", body="ask") for _ in range(4)]
        for span in spans:
            span.end(RuntimeError("529 overloaded"))

    (found,) = findings(home, loops.retry_storm)

    assert (found.kind, found.cause) == ("retry-storm/same-request", spans[0].id)
    assert "retried 3 times" in found.message


def test_attempts_that_are_counted_are_a_storm(home: Home) -> None:
    with recording(home) as run:
        run.child("chat", "llm", {"attempt": 1}).end()
        late = run.child("chat", "llm", {"attempt": 6})
        late.end()

    (found,) = findings(home, loops.retry_storm)

    assert (found.kind, found.cause) == ("retry-storm/attempts", late.id)


def test_one_retry_and_requests_that_succeed_are_no_storm(home: Home) -> None:
    with recording(home) as run:
        run.child("chat", "llm", body="ask").end(RuntimeError("529"))
        for _ in range(5):
            run.child("chat", "llm", {"attempt": 2}, body="ask").end()

    assert findings(home, loops.retry_storm) == []


# --- the algorithm --------------------------------------------------------------------------------


def _slowly(sequence: list[int]) -> list[tuple[int, int, int]]:
    """Every maximal repetition of three rounds, by looking everywhere."""
    found = []
    for period in range(1, len(sequence) // 3 + 1):
        begin = 0
        while begin + period < len(sequence):
            end = begin
            while end + period < len(sequence) and sequence[end] == sequence[end + period]:
                end += 1
            if end - begin + period >= 3 * period:
                found.append((begin, end + period, period))
            begin = end + 1
    loops: list[tuple[int, int, int]] = []
    for one in sorted(found, key=lambda r: (r[0] - r[1], r[2], r[0])):
        if all(one[1] <= other[0] or other[1] <= one[0] for other in loops):
            loops.append(one)
    return sorted(loops)


def test_repeats_are_exactly_those_that_a_slow_search_finds() -> None:
    rng = random.Random(3)
    for _ in range(1500):
        letters = rng.choice([1, 2, 3, 4])
        part = [rng.randrange(letters) for _ in range(rng.randint(1, 9))]
        around = [rng.randrange(letters) for _ in range(rng.randint(0, 20))]
        sequence = around[:7] + part * rng.randint(1, 6) + around[7:]

        found = [(r.begin, r.end, r.period) for r in find_repeats(sequence)]

        assert found == _slowly(sequence), sequence


def _lines_run(work: Callable[[], object]) -> int:
    """How many lines of repeats.py run while it works: its time, on every machine the same."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == repetition.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("modulus", [1, 2, 199, 1200, 4000])
def test_thousands_of_calls_take_n_log_n_steps(modulus: int) -> None:
    """Looking at every pair of calls would take eight million; a long run is looked at in a
    moment.
    """
    sequence = [n % modulus for n in range(4000)]

    steps = _lines_run(lambda: find_repeats(sequence))

    assert [r.period for r in find_repeats(sequence)] == ([modulus] if modulus < 4000 else [])
    assert steps < 10 * len(sequence) * math.log2(len(sequence))
