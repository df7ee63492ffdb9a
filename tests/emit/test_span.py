"""A span is written when it opens, when it learns and when it closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vestige.record.types import Link, SpanClose, SpanOpen, SpanUpdate
from vestige.testing import FakeRecorder


def test_a_span_is_written_before_its_work_is_done() -> None:
    """A killed program must still show what was in flight."""
    recorder = FakeRecorder()

    span = recorder.run("triage", "c-9", {"goal": "reply"}, body="input")

    (opened,) = recorder.spans
    assert (opened.type, opened.name, opened.conversation_id) == ("run", "triage", "c-9")
    assert (opened.attributes, opened.body) == ({"goal": "reply"}, "input")
    assert recorder.close_of(span.id) is None


def test_a_link_between_conversations_names_both() -> None:
    recorder = FakeRecorder()
    source = recorder.run("producer", conversation_id="c-1").child("put", "queue.enqueue")
    target = recorder.run("consumer", conversation_id="c-2").child("take", "queue.deliver")
    same = recorder.run("again", conversation_id="c-2")

    target.add_link(source, reason="took from the queue")
    same.add_link(target)

    between, within = [r for r in recorder.records if isinstance(r, SpanUpdate)]
    assert between.attributes == {
        "source.conversation_id": "c-1",
        "target.conversation_id": "c-2",
    }
    assert within.attributes == {}


def test_a_run_started_inside_another_conversation_names_both() -> None:
    recorder = FakeRecorder()
    with recorder.run("parent", conversation_id="c-1"):
        child = recorder.run("subagent", conversation_id="c-2")

    opened = next(span for span in recorder.spans if span.span_id == child.id)
    assert opened.attributes["source.conversation_id"] == "c-1"
    assert opened.attributes["target.conversation_id"] == "c-2"


def test_what_is_learned_is_written_at_that_moment() -> None:
    """A causal edge must not wait for an end that never comes."""
    recorder = FakeRecorder()
    run = recorder.run("r")
    other = recorder.run("other")

    run.set_attributes({"model": "m", "n": 1}, n=2)
    run.add_link(other, reason="retry of")
    run.add_link("abc", "run-7")

    first, second, third = [r for r in recorder.records if isinstance(r, SpanUpdate)]
    assert first.attributes == {"model": "m", "n": 2}
    assert second.links == [Link(other.id, other.run_id, "retry of")]
    assert third.links == [Link("abc", "run-7", None)]


def test_children_stand_in_their_parent() -> None:
    """The tree is by explicit values: who was asked for a child is its parent."""
    recorder = FakeRecorder()
    run = recorder.run("r", component="triage")

    step = run.child("step")
    tool = step.span("tool", type="tool", attributes={"tool_call_id": "call_7"})

    _, opened_step, opened_tool = recorder.spans
    assert (opened_step.parent_id, opened_step.type) == (run.id, "step")
    assert (opened_tool.parent_id, opened_tool.type) == (step.id, "tool")
    assert {span.run_id for span in recorder.spans} == {run.run_id}
    assert {span.component for span in recorder.spans} == {"triage"}
    assert tool.parent_id == step.id


def test_a_close_says_how_it_went_and_how_long() -> None:
    """Durations come from the monotonic clock: a fake one moves a step a look."""
    recorder = FakeRecorder()
    span = recorder.run("r")

    span.end(attributes={"tokens": 3}, body={"answer": 42})

    close = recorder.close_of(span.id)
    assert close is not None
    assert (close.status, close.attributes, close.body) == ("ok", {"tokens": 3}, '{"answer":42}')
    assert close.duration_ns == 1_000_000
    assert span.ended


class Cancelled(Exception):  # as trio names it
    pass


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad"), "error"),
        (TimeoutError(), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (Cancelled(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (SystemExit(0), "ok"),
        (SystemExit(2), "error"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_exception_that_leaves_a_span_is_its_status(error: BaseException, status: str) -> None:
    """And it reaches the caller unchanged."""
    recorder = FakeRecorder()

    with pytest.raises(type(error)) as caught, recorder.run("r") as span:
        raise error

    close = recorder.close_of(span.id)
    assert close is not None
    assert close.status == status
    assert caught.value is error


def test_an_end_inside_the_block_stands() -> None:
    """`with` closes only what is still open."""
    recorder = FakeRecorder()

    with recorder.run("r") as span:
        span.end(body="done", status="timeout")

    closes = [record for record in recorder.records if isinstance(record, SpanClose)]
    assert [(close.status, close.body) for close in closes] == [("timeout", "done")]
    assert recorder.faults == {}


def test_a_span_works_in_an_async_with() -> None:
    """Sync and async alike."""
    recorder = FakeRecorder()

    async def agent() -> None:
        async with recorder.run("r") as run, run.child("step"):
            await asyncio.sleep(0)

    asyncio.run(agent())

    assert [type(record).__name__ for record in recorder.records[2:]] == [
        "SpanOpen",
        "SpanOpen",
        "SpanClose",
        "SpanClose",
    ]


@pytest.mark.parametrize(
    "odd", [7, None, b"\xff", object(), ["a"]], ids=["int", "none", "bytes", "object", "list"]
)
def test_names_that_are_no_text_become_text(odd: Any) -> None:
    """A record that its reader would refuse is a record lost."""
    recorder = FakeRecorder()

    run = recorder.run(odd, conversation_id=odd, component=odd)
    span = run.child(odd, type=odd)
    span.add_link(odd, odd, odd)
    span.end(status=odd)
    run.end(error=odd)

    kinds = [type(record) for record in recorder.records[2:]]
    assert kinds == [SpanOpen, SpanOpen, SpanUpdate, SpanClose, SpanClose]
    assert recorder.spans[1].name == str(odd)
    assert recorder.faults == {}


@pytest.mark.parametrize("attributes", [["a"], 5, "text", {1, 2}], ids=repr)
def test_attributes_that_are_none_are_counted_and_told(attributes: Any) -> None:
    """Never an exception into the program."""
    recorder = FakeRecorder()

    run = recorder.run("r", attributes=attributes)
    run.set_attributes(attributes, b=1)
    run.end(attributes=attributes)
    recorder.logger("c").child(a=1).span("s", attributes=attributes).end()

    assert recorder.spans[0].attributes == {
        "vestige.unreadable_attributes": type(attributes).__name__
    }
    assert recorder.spans[1].attributes["a"] == 1
    assert recorder.faults == {"attributes could not be read": 4}
