"""Recorded results in place of tools: `vestige replay --tools recorded`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import vestige
from vestige import Recorder, tool
from vestige._runtime.clock import FakeClock
from vestige.emit import replayed_tools
from vestige.errors import UnreadableError
from vestige.home import Home
from vestige.testing import FakeRecorder
from vestige.wire.replaying.response_player import Entry, Player, Settings, write_script
from vestige.wire.replaying.tool_player import (
    ToolLine,
    ToolPlayer,
    UnknownToolCallError,
    match_arguments,
    read_use,
    write_tools,
)


class OutOfStockError(Exception):
    """An error of the program."""


def line(span_id: str, name: str, arguments: Any, output: str | None, **more: Any) -> ToolLine:
    key = match_arguments(json.dumps(arguments, separators=(",", ":")).encode(), [])
    return ToolLine(span_id, name, key, output, **more)


LINES = [
    line("1", "look_up", {"order": "A-17"}, '{"paid": 49.9}'),
    line("2", "look_up", {"order": "A-17"}, '{"paid": 1.5}'),
    line("3", "render", {"order": "A-17"}, '{"paid": 49.9}', is_text=True),
    line("4", "fails", {}, None, error_type="ValueError", error_message="no such order"),
    line("5", "fails", {}, None, error_type="shop.OutOfStockError", error_message="none left"),
    line("6", "fails", {}, None, error_type="shop.UnknownError", error_message="odd"),
    line("7", "waits", {"n": 1}, '"done"'),
    line("8", "running", {}, "recorded", runs=True),
    line("9", "nothing", {}, None),
    line("10", "same", {"n": 1}, "first", call_id="call_a"),
    line("11", "same", {"n": 1}, "second", call_id="call_b"),
    ToolLine("12", "secret", "", None, runs=True),
]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "script")
    write_script(path, [], Settings(until="fork"))
    write_tools(path, LINES)
    monkeypatch.setattr(replayed_tools, "player", ToolPlayer(path, Player(path)))
    monkeypatch.setattr(replayed_tools, "_noted", {})  # The ids of FakeClock repeat.
    return path


def make_tools() -> dict[str, Any]:
    """Define tools that must not run."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the tool ran")

    @tool
    def look_up(order: str) -> dict[str, float]:
        return never()

    @tool
    def render(order: str):  # type: ignore[no-untyped-def]
        return never()

    @tool
    def fails() -> str:
        return never()

    @tool
    async def waits(n: int) -> str:
        return never()

    @tool
    def running() -> str:
        return "really ran"

    @tool
    def nothing() -> None:
        return never()

    return locals()


def test_results_are_those_of_the_recording_each_once(script: str, home: Home) -> None:
    tools = make_tools()
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder, recorder.run("agent"):
        assert tools["look_up"]("A-17") == {"paid": 49.9}
        assert tools["look_up"](order="A-17") == {"paid": 1.5}
        assert tools["render"]("A-17") == '{"paid": 49.9}', "a text stays a text"
        with pytest.raises(ValueError, match="no such order"):
            tools["fails"]()
        with pytest.raises(OutOfStockError, match="none left"):
            tools["fails"]()
        with pytest.raises(RuntimeError, match="odd") as raised:
            tools["fails"]()
        assert type(raised.value).__name__ == "UnknownError"
        assert asyncio.run(tools["waits"](1)) == '"done"'
        assert tools["running"]() == "really ran", "it still ran at the step of the fork"
        assert tools["nothing"]() is None
        with pytest.raises(UnknownToolCallError, match="no call of look_up"):
            tools["look_up"]("A-17")
    assert read_use(script) == (tuple("123456789"), ("look_up",), ("running",))


def test_of_equal_calls_that_with_the_same_id_is_used(script: str, home: Home) -> None:
    @tool
    def same(n: int) -> str:
        raise AssertionError("the tool ran")

    @tool(capture=False)
    def secret(password: str) -> str:
        return f"{password} ran: its result was not recorded"

    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder, recorder.run("agent"):
        with vestige.tool_call("call_b"):
            assert same(1) == "second"
        with vestige.tool_call("call_c"):
            assert same(1) == "first"
        assert secret("x") == "x ran: its result was not recorded"
    assert read_use(script) == (("11", "10", "12"), (), ("secret",))


def test_after_the_step_of_the_fork_tools_run(script: str, home: Home) -> None:
    import msgspec

    tools = make_tools()
    report = msgspec.json.encode(Entry("fork", sent=True)) + b"\n"
    Path(f"{script}.report").write_bytes(report)

    with (
        Recorder(home, crash_hooks=False) as recorder,
        recorder.run("agent"),
        pytest.raises(AssertionError, match="the tool ran"),
    ):
        tools["look_up"]("A-17")


def test_a_text_that_reads_like_json_is_marked_when_it_is_recorded() -> None:
    recorder = FakeRecorder()

    @tool
    def echo(text: Any) -> Any:
        return text

    with recorder.run("agent"):
        for value in ('{"a": 1}', "[1]", "17", "true", "17 pages", "{open", {"a": 1}, 17):
            echo(value)

    marked = [
        record.attributes.get(replayed_tools.TEXT_RESULT, False)
        for record in recorder.records
        if type(record).__name__ == "SpanClose"
    ]
    assert marked[:8] == [True, True, True, True, False, False, False, False]


def test_a_damaged_script_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "script")
    write_script(path, [])
    Path(f"{path}.tools").write_text("{", encoding="utf-8")

    with pytest.raises(UnreadableError, match="not a replay script"):
        ToolPlayer(path, Player(path))
