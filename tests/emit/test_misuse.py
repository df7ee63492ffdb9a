"""What a program does wrong with a span is counted and reported, never raised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from vestige.emit import context
from vestige.emit.tools import tool_call
from vestige.record.types import SpanClose
from vestige.testing import FakeRecorder


def test_a_second_end_is_counted_and_changes_nothing() -> None:
    """The first end is the fact."""
    recorder = FakeRecorder()
    span = recorder.run("r").child("s")
    span.end(body="first")

    span.end(error=ValueError("late"))

    closes = [record for record in recorder.records if isinstance(record, SpanClose)]
    assert [(close.status, close.body) for close in closes] == [("ok", "first")]
    assert recorder.faults == {"span ended twice": 1}


def test_use_after_the_end_is_counted() -> None:
    """A child is still recorded: its work is a fact; an update of what is over is not."""
    recorder = FakeRecorder()
    span = recorder.run("r")
    span.end()
    before = len(recorder.records)

    span.set_attributes(a=1)
    span.add_link("abc")
    span.child("late").end()

    assert len(recorder.records) == before + 2
    assert recorder.faults == {
        "set_attributes on an ended span": 1,
        "add_link on an ended span": 1,
        "child of an ended span": 1,
    }


@pytest.mark.parametrize("make", [lambda: FakeRecorder().run("r"), lambda: tool_call("call_7")])
def test_what_is_entered_again_inside_itself_is_left_twice(make: Callable[[], Any]) -> None:
    """Each time what was before is ambient again; nothing is raised."""
    entered = make()

    with entered:
        with entered:
            pass
        inside = context.SPAN.get() or context.CALL.get()

    assert inside is entered
    assert (context.SPAN.get(), context.CALL.get()) == (None, None)


def test_a_span_that_two_threads_enter_is_left_by_each() -> None:
    """In any order: each has its own ambient span."""
    span = FakeRecorder().run("r")
    left: list[object] = []
    entered, done = threading.Event(), threading.Event()

    def first() -> None:
        with span:
            entered.set()
            done.wait(10)
        left.append(context.SPAN.get())

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    with span:
        pass
    done.set()
    thread.join(10)

    assert left == [None]
    assert context.SPAN.get() is None


def test_a_span_that_was_never_entered_can_be_left() -> None:
    """`ExitStack.push` only leaves."""
    span = FakeRecorder().run("r")
    with ExitStack() as stack:
        stack.push(span)

    assert span.ended


def test_misuse_is_told_in_the_record_itself() -> None:
    """A number in a process that may die is not evidence."""
    recorder = FakeRecorder()
    span = recorder.run("r")
    span.end()
    span.end()

    recorder.close()

    warnings = [line for line in recorder.logs if line.component == "vestige"]
    assert [line.attributes for line in warnings] == [{"span ended twice": 1}]


@pytest.mark.parametrize("value", [None, 12345678, b"\xff" * 8, "", ["a", "b"], object()])
def test_a_secret_that_is_no_text_is_counted_and_given_back(value: Any) -> None:
    """`recorder.secret(os.environ.get("TOKEN"))`, where there is none, stops no program."""
    recorder = FakeRecorder()

    assert recorder.secret(value) is value
    assert recorder.faults == (
        {} if value == "" else {f"secret that is not a text: {type(value).__name__}": 1}
    )


def test_a_secret_given_as_bytes_is_masked() -> None:
    """It is the same secret, and appears as text."""
    recorder = FakeRecorder()
    recorder.secret(b"correct-horse-battery")  # type: ignore[arg-type]  # what this is about

    recorder.run("r").log.info("it was correct-horse-battery")

    assert "correct-horse" not in recorder.logs[-1].message
    assert recorder.faults == {}


def test_a_closed_recorder_takes_calls_and_records_nothing() -> None:
    """Shutdown order is not the program's problem."""
    recorder = FakeRecorder()
    run = recorder.run("r")
    log = recorder.logger("c")
    recorder.close()
    recorder.close()
    before = len(recorder.records)

    assert not recorder.run("late")
    recorder.logger("late").info("late")
    recorder.secret("late")
    recorder.on_any(print)

    assert len(recorder.records) == before
    run.end()
    log.info("after")
    run.child("after")


def test_a_million_open_spans_do_not_leak() -> None:
    """Only a bounded number is remembered for the crash hooks."""
    from vestige.limits import OPEN_SPANS_TRACKED_MAX

    recorder = FakeRecorder()
    run = recorder.run("r")
    for _ in range(OPEN_SPANS_TRACKED_MAX + 50):
        run.child("never ended")

    assert len(recorder._emitter.open_spans) == OPEN_SPANS_TRACKED_MAX
