"""Spans that the callbacks of a framework open and end, in any context and order."""

from __future__ import annotations

import asyncio
import contextvars

from vestige.emit import context, model_call_counts
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.record.types import SpanClose, SpanOpen
from vestige.testing import FakeRecorder


def parents(recorder: FakeRecorder) -> dict[str, str | None]:
    """The name of each span's parent, by the span's name."""
    names = {span.span_id: span.name for span in recorder.spans}
    return {span.name: names.get(span.parent_id or "") for span in recorder.spans}


def openings(recorder: FakeRecorder, name: str) -> list[SpanOpen]:
    records = (record for record in recorder.records if isinstance(record, SpanOpen))
    return [record for record in records if record.name == name]


def closing(recorder: FakeRecorder, name: str) -> SpanClose:
    close = recorder.close_of(openings(recorder, name)[0].span_id)
    assert close is not None
    return close


def test_children_are_inside_the_parent_that_the_framework_names(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "agent a", "agent")
    tracker.start("b", "agent b", "agent", parent="a")
    tracker.start("c", "search", "tool", parent="a", body={"q": "x"}, call_id="call_1")
    tracker.end("c", body="found")
    tracker.end("b")
    tracker.end("a")
    found = parents(recorder)
    assert (found["agent b"], found["search"]) == ("agent a", "agent a")
    assert openings(recorder, "search")[0].attributes["tool_call_id"] == "call_1"
    assert closing(recorder, "search").body == "found"


def test_the_framework_is_named_on_its_outermost_span_only(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "outer", "agent")
    tracker.start("b", "inner", parent="a")
    assert openings(recorder, "outer")[0].attributes["framework"] == "demo"
    assert "framework" not in openings(recorder, "inner")[0].attributes


def test_children_of_a_span_that_is_recorded_already_are_inside_that_one(
    recorder: FakeRecorder,
) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "outer", "agent")
    with SpanTracker("demo").open("search", "tool"):  # type: ignore[union-attr]
        tracker.replace("own tool", "a", "tool")
        tracker.start("b", "inner", "agent", parent="own tool")
        tracker.end("b")
        tracker.replace("own step", "a", "step")
        tracker.start("c", "beside", parent="own step")
        tracker.end("c")
    found = parents(recorder)
    assert (found["search"], found["inner"], found["beside"]) == ("outer", "search", "outer")


def test_a_skipped_parent_passes_its_children_on(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "outer", "agent")
    tracker.skip("hidden", "a")
    tracker.skip("deeper", "hidden")
    context.SPAN.set(None)
    tracker.start("b", "inner", parent="deeper")
    assert parents(recorder)["inner"] == "outer"


def test_work_between_start_and_end_is_inside(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "node")
    assert context.current() is tracker.get("a")
    tracker.end("a")
    assert context.current() is None


def test_a_span_that_ends_in_another_context_is_not_the_ambient_one_any_more(
    recorder: FakeRecorder,
) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "outer")
    tracker.start("b", "inner", parent="a")
    contextvars.copy_context().run(tracker.end, "b")
    outer = context.current()
    assert outer is not None and outer.name == "outer"
    contextvars.copy_context().run(tracker.end, "a")
    assert context.current() is None


def test_spans_may_end_in_the_order_of_their_starts(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "first")
    tracker.start("b", "second", parent="a")
    tracker.end("a")
    second = context.current()
    assert second is not None and second.name == "second"
    tracker.end("b")
    assert context.current() is None


def test_ended_spans_of_other_contexts_are_not_kept_in_memory(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    for number in range(50):
        tracker.start(number, "node")
        contextvars.copy_context().run(tracker.end, number)
    span = context.SPAN.get()
    assert span is not None
    assert span._tokens[-1].old_value in (None, contextvars.Token.MISSING)


def test_tasks_of_one_parent_do_not_see_each_others_spans(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")

    async def work(name: str) -> str:
        tracker.start(name, name, parent="team")
        await asyncio.sleep(0)
        found = context.current()
        tracker.end(name)
        assert found is not None
        return found.name

    async def team() -> list[str]:
        tracker.start("team", "team")
        return await asyncio.gather(work("one"), work("two"))

    assert asyncio.run(team()) == ["one", "two"]
    assert parents(recorder)["two"] == "team"


def test_the_input_and_the_type_may_become_known_later(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "call")
    tracker.complete("a", name="search", type="tool", body={"q": "x"})
    tracker.end("a")
    (late,) = openings(recorder, "search")
    assert (late.type, late.body) == ("tool", '{"q":"x"}')
    assert late.span_id == openings(recorder, "call")[0].span_id


def test_an_error_is_an_exception_or_a_text(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "raised", "tool", body={})
    tracker.end("a", error=ConnectionError("503"))
    tracker.start("b", "reported", "tool", body={})
    tracker.end("b", error="503")
    raised, reported = closing(recorder, "raised"), closing(recorder, "reported")
    assert (raised.status, raised.attributes["error.type"]) == ("error", "ConnectionError")
    assert (reported.status, reported.attributes["error.message"]) == ("error", "503")


def test_a_tool_that_passes_the_conversation_on_is_a_handoff(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.start("a", "transfer_to_agent", "tool", body={"agent_name": "refunds"})
    assert openings(recorder, "transfer_to_agent")[0].type == "handoff"


def test_a_model_call_that_the_wire_recorded_is_not_recorded_again(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    span = tracker.start("a", "node")
    assert span is not None
    tracker.start_model("m1", "a", lambda: {"messages": []})
    model_call_counts.add_call(recorder._emitter, span.id)
    tracker.end_model("m1", "chat")
    tracker.start_model("m2", "a", lambda: {"messages": []})
    tracker.end_model("m2", "local", response="hi", attributes={"input_tokens": 3, "model": None})
    (call,) = [span for span in recorder.spans if span.type == "llm"]
    assert (call.name, call.body) == ("local", '{"messages":[]}')
    assert call.attributes == {"framework": "demo", "input_tokens": 3}


def test_an_unknown_end_and_an_unsampled_run_do_nothing(recorder: FakeRecorder) -> None:
    tracker = SpanTracker("demo")
    tracker.end("never started")
    tracker.complete("never started", body="x")
    tracker.end_model("never started", "chat")
    assert recorder.spans == []
