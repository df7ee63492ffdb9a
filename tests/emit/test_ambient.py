"""`@trace` and `traced_run`: spans for code that has none to pass down."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest

import vestige
from vestige.emit import context
from vestige.process_recorder import default_recorder
from vestige.record.types import SpanOpen
from vestige.testing import FakeRecorder


@pytest.fixture
def recorder() -> Iterator[FakeRecorder]:
    """A fake recorder as the process's own."""
    fake = FakeRecorder()
    context.use_default(lambda: fake)
    yield fake
    fake.close()
    context.use_default(default_recorder)


def span_named(recorder: FakeRecorder, name: str) -> SpanOpen:
    (found,) = [span for span in recorder.spans if span.name.endswith(name)]
    return found


def how(recorder: FakeRecorder, name: str) -> str | None:
    """The status of the span with that name."""
    close = recorder.close_of(span_named(recorder, name).span_id)
    return None if close is None else close.status


# --- functions --------------------------------------------------------------------------------


def test_a_traced_function_is_a_run_of_its_own_or_a_step_of_the_ambient_one(
    recorder: FakeRecorder,
) -> None:
    """Whatever it calls is inside it."""

    @vestige.trace
    def inner(n: int) -> int:
        return n + 1

    @vestige.trace
    def outer(n: int) -> int:
        return inner(n) * 2

    assert outer(20) == 42
    first, second = recorder.spans
    assert (first.type, first.parent_id) == ("run", None)
    assert (second.type, second.parent_id, second.run_id) == ("step", first.span_id, first.run_id)


def test_arguments_and_result_are_the_bodies(recorder: FakeRecorder) -> None:
    """By name, without self; a text result as it is."""

    class Agent:
        @vestige.trace("ask", type="tool")
        def ask(self, question: str, *more: int, deep: bool = False) -> str:
            return "an answer"

    with recorder.run("r"):
        Agent().ask("why?", 1, 2, deep=True)

    opened = span_named(recorder, "ask")
    close = recorder.close_of(opened.span_id)
    assert opened.type == "tool"
    assert json.loads(str(opened.body)) == {"question": "why?", "more": [1, 2], "deep": True}
    assert close is not None
    assert close.body == "an answer"


def test_capture_can_be_turned_off(recorder: FakeRecorder) -> None:
    """For large or private arguments."""

    @vestige.trace(name="quiet", capture=False)
    def secretive(value: str) -> str:
        return value

    assert secretive("x") == "x"
    opened = span_named(recorder, "quiet")
    close = recorder.close_of(opened.span_id)
    assert close is not None
    assert (opened.body, close.body) == (None, None)


def test_hostile_arguments_and_results_pass_through(recorder: FakeRecorder) -> None:
    """The function sees and returns the very objects that it would without us."""

    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __eq__ = __hash__ = __str__  # type: ignore[assignment]

    @vestige.trace
    def identity(value: object) -> object:
        return value

    value = Hostile()

    assert identity(value) is value
    assert len(recorder.spans) == 1


def test_an_error_is_the_spans_status_and_is_not_changed(recorder: FakeRecorder) -> None:
    """The same exception object reaches the caller."""
    error = ValueError("bad")

    @vestige.trace
    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="bad") as caught:
        fail()

    assert caught.value is error
    assert how(recorder, "fail") == "error"
    assert not vestige.current_span()


def test_a_traced_function_stays_what_it_was() -> None:
    """Name, docstring, signature, and its kind."""

    @vestige.trace
    def plain(a: int, b: str = "x") -> None:
        """Says nothing."""

    @vestige.trace
    async def coroutine() -> None: ...

    @vestige.trace
    def generator() -> Iterator[int]:
        yield 1

    @vestige.trace
    async def async_generator() -> AsyncGenerator[int]:
        yield 1

    assert (plain.__name__, plain.__doc__) == ("plain", "Says nothing.")
    assert list(inspect.signature(plain).parameters) == ["a", "b"]
    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(async_generator)


# --- coroutines -------------------------------------------------------------------------------


def test_coroutines_keep_their_own_span_while_others_run(recorder: FakeRecorder) -> None:
    """Two tasks interleave; each sees its own."""
    seen: dict[str, list[str]] = {"a": [], "b": []}

    @vestige.trace
    async def step(name: str) -> str:
        for _ in range(3):
            seen[name].append(vestige.current_span().id)
            await asyncio.sleep(0)
        return name

    async def agent() -> list[str]:
        with recorder.run("r"):
            return await asyncio.gather(step("a"), step("b"))

    assert asyncio.run(agent()) == ["a", "b"]
    assert len(set(seen["a"])) == len(set(seen["b"])) == 1
    assert seen["a"] != seen["b"]
    assert {span.parent_id for span in recorder.spans[1:]} == {recorder.spans[0].span_id}


def test_cancellation_and_timeouts_are_told_apart(recorder: FakeRecorder) -> None:
    """Who waited timed out; who was waited for was cancelled."""

    @vestige.trace
    async def slow() -> None:
        await asyncio.sleep(30)

    @vestige.trace
    async def patient() -> None:
        await asyncio.wait_for(slow(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(patient())

    assert how(recorder, "patient") == "timeout"
    assert how(recorder, "slow") == "cancelled"


def test_a_cancelled_task_stays_cancelled(recorder: FakeRecorder) -> None:
    """CancelledError is never swallowed."""

    @vestige.trace
    async def slow() -> None:
        await asyncio.sleep(30)

    async def agent() -> bool:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(agent()) is True
    assert how(recorder, "slow") == "cancelled"


# --- generators -------------------------------------------------------------------------------


@vestige.trace
def counting(n: int) -> Generator[int, Any, str]:
    for number in range(n):
        vestige.current_span().log.info("inside")
        yield number
    return "done"


def test_a_generators_span_is_not_ambient_for_its_consumer(recorder: FakeRecorder) -> None:
    """Only while the generator itself runs."""
    with recorder.run("r") as run:
        ambient = []
        for _ in counting(2):
            ambient.append(vestige.current_span())
            run.child("consumer").end()

    generator = span_named(recorder, "counting")
    assert ambient == [run, run]
    assert {span.parent_id for span in recorder.spans if span.name == "consumer"} == {run.id}
    assert {line.span_id for line in recorder.logs} == {generator.span_id}
    assert how(recorder, "counting") == "ok"


def test_send_throw_and_return_reach_the_generator(recorder: FakeRecorder) -> None:
    """It is the same generator, seen from both sides."""

    @vestige.trace
    def echo() -> Generator[Any, Any, str]:
        heard = []
        while len(heard) < 3:
            try:
                heard.append((yield len(heard)))
            except KeyError as error:
                heard.append(repr(error))
        return ",".join(heard)

    generator = echo()

    assert next(generator) == 0
    assert generator.send("a") == 1
    assert generator.throw(KeyError("k")) == 2
    with pytest.raises(StopIteration) as stop:
        generator.send("b")
    assert stop.value.value == "a,KeyError('k'),b"
    assert how(recorder, "echo") == "ok"


def test_a_generator_that_nobody_finishes_is_cancelled(recorder: FakeRecorder) -> None:
    """An early stop is not an error; its own clean-up still runs inside its span."""
    cleaned_in = []

    @vestige.trace
    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            cleaned_in.append(vestige.current_span().id)

    generator = endless()
    next(generator)
    generator.close()  # type: ignore[attr-defined]  # a generator

    assert how(recorder, "endless") == "cancelled"
    assert cleaned_in == [span_named(recorder, "endless").span_id]


def test_a_generators_error_is_its_spans(recorder: FakeRecorder) -> None:
    """What it raises, and what is thrown in and not caught."""

    @vestige.trace
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("x")

    @vestige.trace
    def thrown_at() -> Iterator[int]:
        yield 1

    with pytest.raises(ValueError, match="x"):
        list(failing())
    generator = thrown_at()
    next(generator)
    with pytest.raises(KeyError):
        generator.throw(KeyError())  # type: ignore[attr-defined]  # a generator

    assert how(recorder, "failing") == "error"
    assert how(recorder, "thrown_at") == "error"


def test_a_generator_that_never_starts_has_no_span(recorder: FakeRecorder) -> None:
    """Nothing happened."""
    counting(3)

    assert recorder.spans == []


def test_async_generators_work_like_generators(recorder: FakeRecorder) -> None:
    """asend, athrow, the end, and the consumer's own span in between."""
    ambient: list[bool] = []

    @vestige.trace
    async def echo() -> AsyncGenerator[Any, Any]:
        heard: Any = None
        while heard != "stop":
            try:
                vestige.current_span().log.info("inside")
                await asyncio.sleep(0)
                heard = yield heard
            except KeyError:
                heard = "caught"

    async def agent() -> list[Any]:
        generator = echo()
        values = [await anext(generator)]
        ambient.append(bool(vestige.current_span()))
        values.append(await generator.asend("a"))
        values.append(await generator.athrow(KeyError()))
        with pytest.raises(StopAsyncIteration):
            await generator.asend("stop")
        return values

    assert asyncio.run(agent()) == [None, "a", "caught"]
    assert ambient == [False]
    assert how(recorder, "echo") == "ok"
    assert {line.span_id for line in recorder.logs} == {span_named(recorder, "echo").span_id}


@pytest.mark.parametrize("close", [True, False])
def test_an_async_generator_left_early_is_cancelled(recorder: FakeRecorder, close: bool) -> None:
    """Whether its consumer closes it or the loop does at its end."""

    @vestige.trace
    async def endless() -> AsyncGenerator[int]:
        while True:
            yield 1

    async def agent() -> None:
        generator = endless()
        async for _ in generator:
            break
        if close:
            await generator.aclose()

    asyncio.run(agent())

    assert how(recorder, "endless") == "cancelled"


def test_an_async_generators_error_is_its_spans(recorder: FakeRecorder) -> None:
    """And reaches the consumer."""

    @vestige.trace
    async def failing() -> AsyncGenerator[int]:
        yield 1
        raise ValueError("x")

    async def agent() -> None:
        async for _ in failing():
            pass

    with pytest.raises(ValueError, match="x"):
        asyncio.run(agent())

    assert how(recorder, "failing") == "error"


# --- runs and the current span ----------------------------------------------------------------


def test_traced_run_is_a_run_of_the_default_recorder(recorder: FakeRecorder) -> None:
    """Sync and async; a run inside a run is a run of its own, linked."""

    async def agent() -> None:
        async with vestige.traced_run("inner"):
            pass

    with vestige.traced_run("outer", "c-1", {"a": 1}) as outer:
        asyncio.run(agent())

    first, second = recorder.spans
    assert (first.name, first.conversation_id, first.attributes) == ("outer", "c-1", {"a": 1})
    assert second.run_id != first.run_id
    assert (outer.id, outer.run_id, "started by") in [
        (link.span_id, link.run_id, link.reason) for link in second.links or []
    ]


def test_the_current_span_is_falsy_outside_any(recorder: FakeRecorder) -> None:
    """And a no-op; inside it is the innermost."""
    nothing = vestige.current_span()
    nothing.set_attributes(a=1)
    nothing.log.info("nowhere")
    nothing.child("nowhere").end()

    with recorder.run("r") as run:
        assert vestige.current_span() is run
        with run.child("s") as span:
            assert vestige.current_span() is span
        assert vestige.current_span() is run

    assert not nothing
    assert not vestige.current_span()
    assert [span.name for span in recorder.spans] == ["r", "s"]
    assert recorder.logs == []


def test_a_generator_that_is_called_wrongly_ends_its_span() -> None:
    """The call raises what it would have raised, and the span says so."""
    recorder = FakeRecorder()

    @vestige.trace
    def numbers(first: int) -> Iterator[int]:
        yield first

    @vestige.trace
    async def later(first: int) -> AsyncIterator[int]:
        yield first

    async def consume() -> None:
        async for _ in later():  # type: ignore[call-arg]  # what is tested
            pass

    with recorder.run("r"):
        with pytest.raises(TypeError):
            list(numbers())  # type: ignore[call-arg]  # what is tested
        with pytest.raises(TypeError):
            asyncio.run(consume())

    closes = [recorder.close_of(span.span_id) for span in recorder.spans[1:]]
    assert [close and close.status for close in closes] == ["error", "error"]


def test_a_span_that_is_open_across_a_yield_is_ambient_when_the_generator_goes_on(
    recorder: FakeRecorder,
) -> None:
    def child(name: str) -> vestige.Span:
        span = context.current()
        assert span is not None
        return span.child(name, "step")

    @vestige.trace
    def outer() -> Iterator[int]:
        with child("inner"):
            yield 1
            child("in inner").end()
        yield 2
        child("in outer").end()

    @vestige.trace
    async def outer_async() -> AsyncIterator[int]:
        with child("inner async"):
            yield 1
            child("in inner async").end()
        yield 2
        child("in outer async").end()

    async def consume() -> None:
        async for number in outer_async():
            child(f"consumer async {number}").end()

    with recorder.run("main"):
        for number in outer():
            child(f"consumer {number}").end()
        asyncio.run(consume())

    names = {span.span_id: span.name for span in recorder.spans}
    parents = {span.name: names.get(span.parent_id or "", "") for span in recorder.spans}
    for end in ("", " async"):
        assert parents[f"in inner{end}"] == f"inner{end}"
        assert parents[f"in outer{end}"].endswith("outer" + end.replace(" ", "_"))
        assert parents[f"consumer{end} 1"] == parents[f"consumer{end} 2"] == "main"
