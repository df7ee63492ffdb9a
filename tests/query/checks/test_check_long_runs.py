"""Long runs: four times as many spans take about four times as many steps, whatever their shape."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support.planted_bugs import Function, answer, evidence_of, recording, request, think
from vestige._runtime.clock import FakeClock
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query import checks, evidence
from vestige.query.checks.model import history
from vestige.query.checks.process import crash
from vestige.query.checks.progress import delivery, time_and_usage

WATCHED = (str(Path(checks.__file__).parent), evidence.__file__)
SHORT, LONG = 60, 240


def prompts_beside_calls(run: Span, count: int, _: FakeClock) -> None:
    """A transform that changes every prompt."""
    for n in range(count):
        run.child("prompt", "prompt", None, request(text=f"what was meant, {n}")).end()
        think(run, request(text=f"another thing: {n}"), answer(text="yes"))


def one_message_again_and_again(run: Span, count: int, _: FakeClock) -> None:
    for _n in range(count):
        run.child("take", "queue.dequeue", {"message_id": "m"}).end()
        run.child("give", "queue.deliver", {"message_id": "m"}).end()


def one_message_sent_again_and_again(run: Span, count: int, _: FakeClock) -> None:
    for _n in range(count):
        attributes = {"message_id": "m", "target_conversation_id": "c"}
        run.child("put", "queue.enqueue", attributes).end()
        run.child("give", "queue.deliver", {"message_id": "m"}).end()


def threads_that_die(run: Span, count: int, _: FakeClock) -> None:
    log = run._emitter.send.__self__.logger("vestige").child(run)
    for n in range(count):
        run.child("work", "step").end(ValueError(f"no {n}"))
        error = {"error.type": "ValueError", "error.message": f"no {n}"}
        log.error("uncaught", last_words="uncaught exception in thread", **error)


def stalled_within_stalled(run: Span, count: int, clock: FakeClock) -> None:
    for _ in range(count + 2):
        run.child("level", "step").end()
    spans = [run]
    for _ in range(count):
        spans.append(spans[-1].child("level", "step"))
    clock.advance(100 * 10**9)
    for span in reversed(spans[1:]):
        span.end()


def _lines_run(work: Callable[[], object]) -> int:
    """How many lines of the checks run while it works: its time, on every machine the same."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename.startswith(WATCHED) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "check"),
    [
        (prompts_beside_calls, history.history_mutation),
        (one_message_again_and_again, delivery.delivery_without_enqueue),
        (one_message_sent_again_and_again, delivery.misrouted_delivery),
        (threads_that_die, crash.uncaught_exception),
        (stalled_within_stalled, time_and_usage.stalled_step),
    ],
    ids=lambda each: each.__name__,
)
def test_steps_grow_with_the_spans_and_not_with_their_pairs(
    tmp_path: Path, build: Callable[[Span, int, FakeClock], None], check: Function
) -> None:
    steps = []
    for count in (SHORT, LONG):
        home = Home(tmp_path / str(count))
        clock = FakeClock()
        with recording(home, "c", clock) as run:
            build(run, count, clock)
        with evidence_of(home) as found:
            steps.append(_lines_run(lambda found=found: list(check(found))))  # type: ignore[misc]

    assert steps[1] < 1.5 * LONG / SHORT * steps[0]
