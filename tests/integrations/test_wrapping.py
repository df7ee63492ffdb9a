"""Methods of frameworks that are wrapped: their results, errors and kinds do not change."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls
from vestige.testing import FakeRecorder


class Tool:
    name = "search"

    def call(self, q: str) -> str:
        """Search."""
        if q == "bad":
            raise ConnectionError("503")
        return q.upper()

    async def acall(self, q: str) -> str:
        return q.upper()

    def stream(self, q: str) -> Iterator[str]:
        yield from q

    async def astream(self, q: str) -> AsyncIterator[str]:
        for letter in q:
            yield letter


@pytest.fixture
def tool() -> Any:
    class Wrapped(Tool):
        call, acall, stream, astream = Tool.call, Tool.acall, Tool.stream, Tool.astream

    for name in ("call", "acall", "stream", "astream"):
        record_calls(SpanTracker("demo"), Wrapped, name, describe)
    return Wrapped()


def describe(tool: Any, args: Any, kwargs: Any) -> Call:
    return Call(tool.name, "tool", {"q": kwargs.get("q", args[0] if args else None)})


def test_calls_of_all_kinds_are_recorded_and_unchanged(recorder: FakeRecorder, tool: Any) -> None:
    async def collect() -> list[str]:
        return [await tool.acall("a"), *[letter async for letter in tool.astream("bc")]]

    assert tool.call("x") == "X"
    assert list(tool.stream("yz")) == ["y", "z"]
    assert asyncio.run(collect()) == ["A", "b", "c"]
    assert [span.type for span in recorder.spans] == ["tool"] * 4
    closes = [recorder.close_of(span.span_id) for span in recorder.spans]
    assert [close.body for close in closes if close] == ["X", "z", "A", "c"]


def test_the_kind_and_the_signature_stay(tool: Any) -> None:
    assert inspect.iscoroutinefunction(type(tool).acall)
    assert inspect.isgeneratorfunction(type(tool).stream)
    assert inspect.isasyncgenfunction(type(tool).astream)
    assert inspect.signature(type(tool).call) == inspect.signature(Tool.call)
    assert type(tool).call.__doc__ == "Search."


def test_an_exception_reaches_the_program_and_the_span(recorder: FakeRecorder, tool: Any) -> None:
    with pytest.raises(ConnectionError, match="503"):
        tool.call("bad")
    close = recorder.close_of(recorder.spans[0].span_id)
    assert close is not None and close.status == "error"


def test_a_failure_of_the_integration_is_counted_and_not_raised(recorder: FakeRecorder) -> None:
    class Wrapped(Tool):
        call = Tool.call

    def describe_badly(tool: Any, args: Any, kwargs: Any) -> Call:
        raise KeyError("a field that this version does not have")

    record_calls(SpanTracker("demo"), Wrapped, "call", describe_badly)
    assert Wrapped().call("x") == "X"
    assert recorder.spans == []
    assert recorder.faults == {"integration demo: KeyError": 1}


def test_a_result_may_report_a_failure(recorder: FakeRecorder) -> None:
    class Wrapped(Tool):
        call = Tool.call

    record_calls(
        SpanTracker("demo"), Wrapped, "call", describe, lambda result: Outcome(result, "refused")
    )
    assert Wrapped().call("x") == "X"
    close = recorder.close_of(recorder.spans[0].span_id)
    assert close is not None
    assert (close.status, close.attributes["error.message"]) == ("error", "refused")


def test_a_missing_method_is_left_out() -> None:
    record_calls(SpanTracker("demo"), Tool, "no_such_method", describe)
    assert not hasattr(Tool, "no_such_method")
