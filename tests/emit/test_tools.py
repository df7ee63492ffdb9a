"""`@tool`, `tool_call` and `span.tool`: tool calls that know who asked for them."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import vestige
from vestige.emit import context, requested_tool_calls
from vestige.process_recorder import default_recorder
from vestige.record.types import SpanOpen
from vestige.testing import FakeRecorder


@pytest.fixture
def recorder() -> Iterator[FakeRecorder]:
    """A fake recorder as the process's own."""
    requested_tool_calls.forget_all()
    fake = FakeRecorder()
    context.use_default(lambda: fake)
    yield fake
    fake.close()
    context.use_default(default_recorder)


def ask(run: vestige.Span, call_id: str | None, name: str, arguments: str) -> vestige.Span:
    """A model call that asked for one tool call, and is over."""
    span = run.child("chat", type="llm")
    span.end()
    requested_tool_calls.remember(run.run_id, call_id, name, arguments, span)
    return span


def tools(recorder: FakeRecorder) -> list[SpanOpen]:
    return [span for span in recorder.spans if span.type == "tool"]


def asker(span: SpanOpen) -> str | None:
    for link in span.links or ():
        if link.reason == "asked by":
            return link.span_id
    return None


@vestige.tool
def search(q: str, limit: int = 10) -> list[str]:
    """Look something up."""
    return [q] * limit


# --- what is recorded ---------------------------------------------------------------------------


def test_a_tool_call_keeps_its_name_arguments_and_result(recorder: FakeRecorder) -> None:
    with recorder.run("r") as run:
        result = search("x", limit=2)

    (span,) = tools(recorder)
    close = recorder.close_of(span.span_id)
    assert result == ["x", "x"]
    assert (span.name, span.parent_id, span.attributes) == (
        "search",
        run.id,
        {"tool_name": "search"},
    )
    assert json.loads(str(span.body)) == {"q": "x", "limit": 2}
    assert close is not None
    assert (close.status, json.loads(str(close.body))) == ("ok", ["x", "x"])


def test_a_failing_tool_keeps_its_error_and_the_exception_goes_on(recorder: FakeRecorder) -> None:
    @vestige.tool("look up")
    def look_up(order: str) -> str:
        raise KeyError(order)

    with recorder.run("r"), pytest.raises(KeyError, match="A-1"):
        look_up("A-1")

    (span,) = tools(recorder)
    close = recorder.close_of(span.span_id)
    assert span.attributes["tool_name"] == "look up"
    assert close is not None
    assert (close.status, close.attributes["error.type"]) == ("error", "KeyError")


def test_without_capture_neither_arguments_nor_result_are_kept(recorder: FakeRecorder) -> None:
    """Who asked is found all the same."""

    @vestige.tool(name="pay", capture=False)
    def pay_now(card: str) -> str:
        return card

    with recorder.run("r") as run:
        model = ask(run, "call_1", "pay", '{"card": "a"}')
        pay_now("a")

    (span,) = tools(recorder)
    close = recorder.close_of(span.span_id)
    assert (span.body, close and close.body, asker(span)) == (None, None, model.id)


def test_outside_any_run_a_tool_belongs_to_the_process(recorder: FakeRecorder) -> None:
    """As a model call there does, so that the two still find each other."""
    model = recorder.logger("agent").span("chat", "llm")
    requested_tool_calls.remember(model.run_id, "call_1", "search", '{"q": "x"}', model)
    search(q="x")

    (span,) = tools(recorder)
    assert (span.run_id, span.parent_id) == (model.run_id, model.parent_id)
    assert asker(span) == model.id


def test_coroutines_and_generators_are_tools_too(recorder: FakeRecorder) -> None:
    """A generator's result is what it returns, or else the last that it yielded."""

    @vestige.tool
    async def fetch(url: str) -> str:
        return f"page of {url}"

    @vestige.tool
    def steps(n: int) -> Generator[int, None, str]:
        yield from range(n)
        return "all"

    @vestige.tool
    async def stream(n: int) -> AsyncGenerator[int, None]:
        for number in range(n):
            yield number

    async def all_of_it() -> None:
        assert await fetch("u") == "page of u"
        assert [item async for item in stream(3)] == [0, 1, 2]

    with recorder.run("r"):
        asyncio.run(all_of_it())
        assert list(steps(2)) == [0, 1]

    results = {
        span.name: getattr(recorder.close_of(span.span_id), "body", 0) for span in tools(recorder)
    }
    assert results == {"fetch": "page of u", "stream": "2", "steps": "all"}
    assert inspect.iscoroutinefunction(fetch)
    assert inspect.isgeneratorfunction(steps)
    assert inspect.isasyncgenfunction(stream)


def test_a_tool_looks_like_the_function_that_it_is(recorder: FakeRecorder) -> None:
    """Frameworks make a tool's schema from its name, signature and docstring."""
    assert (search.__name__, search.__doc__) == ("search", "Look something up.")
    assert list(inspect.signature(search).parameters) == ["q", "limit"]


# --- for which call -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "call_7",
        {"id": "call_7", "function": {"name": "search"}},
        SimpleNamespace(id="call_7", type="tool_use"),
        SimpleNamespace(id="fc_1", call_id="call_7"),
    ],
)
def test_tool_call_says_for_which_call_a_tool_runs(recorder: FakeRecorder, call: Any) -> None:
    """By its id, or as the provider's SDK hands it out."""
    with recorder.run("r") as run:
        model = ask(run, "call_7", "search", '{"q": "never compared"}')
        with vestige.tool_call(call):
            search("x")

    (span,) = tools(recorder)
    assert span.attributes == {"tool_name": "search", "tool_call_id": "call_7"}
    assert asker(span) == model.id


def test_a_loop_written_by_hand_needs_no_change(recorder: FakeRecorder) -> None:
    """Two equal calls of one answer get an id each, and the spans say that it was matched."""
    calls = [("call_1", '{"q": "x"}'), ("call_2", '{"q": "y"}'), ("call_3", '{"q": "x"}')]
    with recorder.run("r") as run:
        for call_id, arguments in calls:
            ask(run, call_id, "search", arguments)
        for _, arguments in calls:
            {"search": search}["search"](**json.loads(arguments))

    assert [span.attributes["tool_call_id"] for span in tools(recorder)] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    assert {span.attributes["tool_call.matched"] for span in tools(recorder)} == {
        "name and arguments"
    }


def test_a_tool_that_takes_all_arguments_as_one_is_matched(recorder: FakeRecorder) -> None:
    @vestige.tool
    def run_sql(arguments: dict[str, Any]) -> None: ...

    @vestige.tool
    def anything(**arguments: Any) -> None: ...

    with recorder.run("r") as run:
        ask(run, "call_1", "run_sql", '{"sql": "SELECT 1"}')
        ask(run, "call_2", "anything", '{"a": 1, "b": 2}')
        run_sql({"sql": "SELECT 1"})
        anything(b=2, a=1)

    assert [span.attributes["tool_call_id"] for span in tools(recorder)] == ["call_1", "call_2"]


def test_a_tool_that_takes_its_own_id_is_believed(recorder: FakeRecorder) -> None:
    """Some frameworks hand it in."""

    @vestige.tool
    def remember(note: str, tool_call_id: str) -> None: ...

    with recorder.run("r"):
        remember("n", tool_call_id="call_9")

    (span,) = tools(recorder)
    assert span.attributes["tool_call_id"] == "call_9"


def test_what_a_tool_calls_is_not_the_call_itself(recorder: FakeRecorder) -> None:
    """The id is the outer tool's, also in generators and threads; run again, it is its again."""

    @vestige.tool
    def outer() -> Generator[Any, None, None]:
        yield search("inside", limit=1)

    with recorder.run("r"), vestige.tool_call("call_1"):
        list(outer())
        thread = threading.Thread(target=search, args=("in a thread",))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(search, "in a pool").result()

    ids = [(span.name, span.attributes.get("tool_call_id")) for span in tools(recorder)]
    assert ids == [
        ("outer", "call_1"),
        ("search", None),
        ("search", "call_1"),
        ("search", "call_1"),
    ]
    assert context.CALL.get() is None


def test_an_unknown_id_is_kept_and_links_to_nobody(recorder: FakeRecorder) -> None:
    with recorder.run("r") as run:
        ask(run, "call_1", "search", '{"q": "x"}')
        with vestige.tool_call("call_2"):
            search(q="x")

    (span,) = tools(recorder)
    assert (span.attributes["tool_call_id"], span.links) == ("call_2", None)


# --- by hand ------------------------------------------------------------------------------------


def test_a_span_opens_a_tool_by_hand(recorder: FakeRecorder) -> None:
    """Exact arguments; the link is in the first record, so that a killed tool still has it."""
    with recorder.run("r") as run:
        model = ask(run, "call_1", "search", '{"q":"x"}')
        with run.tool("search", '{"q":"x"}', tool_call_id="call_1") as span:
            span.end(body="[]")
        ask(run, "call_2", "search", '{"q":"x"}')
        run.tool("search", {"q": "x"})

    first, second = tools(recorder)
    assert (first.body, asker(first)) == ('{"q":"x"}', model.id)
    assert "tool_call.matched" not in first.attributes
    assert second.attributes["tool_call_id"] == "call_2"


class Hostile:
    @property
    def id(self) -> str:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_misuse_is_never_raised_into_the_program(recorder: FakeRecorder) -> None:
    """A wrong call raises what it would have raised without us."""
    with recorder.run("r") as run:
        with vestige.tool_call(Hostile()), pytest.raises(TypeError, match="unexpected keyword"):
            search(nonsense=Hostile())  # type: ignore[call-arg]
        with vestige.tool_call(None):
            search(Hostile(), limit=1)  # type: ignore[arg-type]
        run.tool(Hostile(), Hostile(), tool_call_id=Hostile()).end()  # type: ignore[arg-type]

    assert len(tools(recorder)) == 3


def test_a_recorder_that_is_off_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do runs that are not sampled record their tools."""
    monkeypatch.setenv("VESTIGE_DISABLED", "1")
    assert search("x", limit=1) == ["x"]
    assert not vestige.current_span().tool("search", {})

    monkeypatch.delenv("VESTIGE_DISABLED")
    with FakeRecorder(sample=0.0) as unsampled, unsampled.run("r"):
        search("x", limit=1)
    assert tools(unsampled) == []
