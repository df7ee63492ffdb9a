"""Which model call asked for which tool call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from vestige.emit import requested_tool_calls
from vestige.emit.span import Span
from vestige.limits import REQUESTED_ARGUMENTS_MAX, REQUESTED_CALLS_MAX, REQUESTED_RUNS_MAX
from vestige.testing import FakeRecorder


@pytest.fixture
def run() -> Iterator[Span]:
    requested_tool_calls.forget_all()
    recorder = FakeRecorder()
    with recorder.run("r") as run:
        yield run
    recorder.close()
    requested_tool_calls.forget_all()


def asking(run: Span, call_id: str | None, name: str, arguments: Any) -> Span:
    """A model call that asked for one tool call, and is over."""
    span = run.child("chat", type="llm")
    span.end()
    requested_tool_calls.remember(run.run_id, call_id, name, arguments, span)
    return span


def test_a_call_is_found_by_its_id(run: Span) -> None:
    """Also a second time: a tool that is run again was asked for by the same model call."""
    span = asking(run, "call_7", "search", '{"q": "x"}')

    found = requested_tool_calls.find(run.run_id, tool_call_id="call_7")
    assert found is not None
    assert (found.span_id, found.name, found.tool_call_id) == (span.id, "search", "call_7")
    assert requested_tool_calls.find(run.run_id, tool_call_id="call_7") == found
    assert requested_tool_calls.find(run.run_id, tool_call_id="call_8") is None
    assert requested_tool_calls.find("another run", tool_call_id="call_7") is None


def test_an_id_that_comes_again_means_the_latest_call(run: Span) -> None:
    """Some providers start counting again in every turn."""
    asking(run, "call_0", "search", "{}")
    second = asking(run, "call_0", "search", "{}")

    found = requested_tool_calls.find(run.run_id, tool_call_id="call_0")
    assert found is not None
    assert found.span_id == second.id


@pytest.mark.parametrize(
    ("requested", "called"),
    [
        ('{"q": "x", "n": 2}', {"n": 2, "q": "x"}),
        ('{"n": 2.0, "deep": [{"m": 3}]}', {"n": 2, "deep": [{"m": 3.0}]}),
        ('{"q":"\\u00fc"}', {"q": "ü"}),
        ("", {}),
        (None, {}),
        ({"q": "x"}, '{ "q" : "x" }'),
    ],
)
def test_without_an_id_equal_arguments_tell(run: Span, requested: Any, called: Any) -> None:
    """Equal as JSON values: spacing, order of keys and escapes do not count."""
    asking(run, "call_1", "search", requested)

    found = requested_tool_calls.find(run.run_id, name="search", arguments=called)
    assert found is not None
    assert found.tool_call_id == "call_1"


def test_the_oldest_unanswered_of_equal_calls_comes_first(run: Span) -> None:
    """One answer each; other names and arguments are passed over; then there is none."""
    for call_id in ("call_1", "call_2", "call_3"):
        asking(run, call_id, "search", '{"q": "x"}')
    asking(run, "call_4", "fetch", '{"q": "x"}')
    requested_tool_calls.find(run.run_id, tool_call_id="call_2")

    def ask(**arguments: Any) -> str | None:
        found = requested_tool_calls.find(run.run_id, name="search", arguments=arguments)
        return found and found.tool_call_id

    assert [ask(q="y"), ask(q="x"), ask(q="x"), ask(q="x")] == [None, "call_1", "call_3", None]


def test_two_threads_never_take_the_same_call(run: Span) -> None:
    for number in range(100):
        asking(run, f"call_{number}", "search", "{}")
    taken: list[str | None] = []

    def take() -> None:
        for _ in range(50):
            found = requested_tool_calls.find(run.run_id, name="search", arguments={})
            taken.append(found and found.tool_call_id)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(taken)) == 100
    assert None not in taken


def test_what_is_remembered_is_bounded(run: Span) -> None:
    """The oldest calls of a run go first, and the run that was longest silent."""
    for number in range(REQUESTED_CALLS_MAX + 10):
        asking(run, f"call_{number}", "search", "{}")
    newest = requested_tool_calls.find(run.run_id, tool_call_id="call_10")
    gone = requested_tool_calls.find(run.run_id, tool_call_id="call_9")
    for number in range(REQUESTED_RUNS_MAX):
        requested_tool_calls.remember(f"run {number}", "call_1", "search", "{}", run)

    assert (newest is not None, gone) == (True, None)
    assert requested_tool_calls.find(run.run_id, tool_call_id="call_10") is None
    assert requested_tool_calls.find("run 0", tool_call_id="call_1") is not None


def test_long_arguments_are_found_by_id_only(run: Span) -> None:
    long = {"text": "x" * REQUESTED_ARGUMENTS_MAX}
    asking(run, "call_1", "write", long)

    assert requested_tool_calls.find(run.run_id, name="write", arguments=long) is None
    assert requested_tool_calls.find(run.run_id, tool_call_id="call_1") is not None


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __eq__ = __str__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "odd", [Hostile(), {"x": Hostile()}, "{broken", {1: object()}, "[" * 50_000]
)
def test_odd_values_are_never_raised_about(run: Span, odd: Any) -> None:
    """They match nothing; the id still identifies the call."""
    asking(run, "call_1", "search", odd)
    asking(run, odd, odd, odd)

    assert requested_tool_calls.find(run.run_id, name="search", arguments=odd) is None
    assert requested_tool_calls.find(run.run_id, name=odd, arguments=odd) is None
    assert requested_tool_calls.find(run.run_id, tool_call_id="call_1") is not None


def test_a_step_around_a_model_call_knows_that_the_call_asked(run: Span) -> None:
    """Then it does not claim the call for itself."""
    step = run.child("create")
    call = step.child("chat", type="llm")
    requested_tool_calls.remember(run.run_id, "call_1", "search", "{}", call)
    requested_tool_calls.remember(run.run_id, "call_2", "search", "{}", step)

    assert requested_tool_calls.was_requested_within(step, "call_1")
    assert not requested_tool_calls.was_requested_within(step, "call_2")
    assert not requested_tool_calls.was_requested_within(run, "call_1")
