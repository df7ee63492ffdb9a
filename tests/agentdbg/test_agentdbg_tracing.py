"""trace, traced_run and the record functions of the AgentDbg face, in this process."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.programs import ReadRuns
from support.run_directories import only_rundir, read_rundirs
from vestige.agentdbg import (
    AgentDbgGuardrailExceeded,
    AgentDbgLoopAbort,
    has_active_run,
    record_llm_call,
    record_state,
    record_tool_call,
    run_lifecycle,
    trace,
    traced_run,
)

# --- what a program imports ----------------------------------------------------------------------

LIMITS = [
    "stop_on_loop",
    "stop_on_loop_min_repetitions",
    "max_llm_calls",
    "max_tool_calls",
    "max_events",
    "max_duration_s",
]


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (trace, ["f", "name", *LIMITS]),
        (traced_run, ["name", *LIMITS]),
        (has_active_run, []),
        (
            record_llm_call,
            [
                "model",
                "prompt",
                "response",
                "usage",
                "meta",
                "provider",
                "temperature",
                "stop_reason",
                "status",
                "error",
            ],
        ),
        (record_tool_call, ["name", "args", "result", "meta", "status", "error"]),
        (record_state, ["state", "meta", "diff"]),
    ],
)
def test_parameters_are_those_of_the_real_package(function: Any, parameters: list[str]) -> None:
    """By position and by name; the defaults are compared in test_agentdbg_peer.py."""
    assert list(inspect.signature(function).parameters) == parameters


def test_guardrails_can_be_caught_by_their_names_but_not_as_exceptions() -> None:
    assert not issubclass(AgentDbgGuardrailExceeded, Exception)
    assert issubclass(AgentDbgLoopAbort, AgentDbgGuardrailExceeded)


# --- forms of trace -------------------------------------------------------------------------------


def test_every_form_of_the_decorator_makes_a_run(data_dir: Path) -> None:
    """Bare, called, named by position and by keyword; on functions, methods and static methods."""

    class Agent:
        @trace
        def method(self, x: int) -> int:
            record_state(x)
            return x

        @trace
        @staticmethod
        def static() -> int:
            return 2

        @classmethod
        @trace("of the class")
        def of_class(cls) -> int:
            return 3

    @trace()
    def called() -> int:
        return 4

    @trace(name="by keyword")
    def named() -> int:
        return 5

    @trace
    async def coroutine() -> int:
        await asyncio.sleep(0)
        return 6

    results = [Agent().method(1), Agent.static(), Agent.of_class(), called(), named()]
    results.append(asyncio.run(coroutine()))

    names = [
        run.run["run_name"].split(" - ")[0].rpartition(":")[2] for run in read_rundirs(data_dir)
    ]
    assert results == [1, 2, 3, 4, 5, 6]
    assert sorted(names) == sorted(
        ["method", "static", "of the class", "called", "by keyword", "coroutine"]
    )


def test_a_traced_generator_keeps_what_it_records_while_it_runs(data_dir: Path) -> None:
    """Its run is open while it is consumed, and active only inside it. The real one loses it
    all.
    """

    @trace
    def numbers() -> Iterator[int]:
        for number in range(3):
            record_tool_call("next", {"n": number})
            yield number

    outside = [has_active_run() for _ in numbers()]

    run = only_rundir(data_dir)
    assert outside == [False, False, False]
    assert run.types == ["RUN_START", *["TOOL_CALL"] * 3, "RUN_END"]
    assert run.run["status"] == "ok"


def test_a_generator_whose_consumer_had_enough_ends_well(data_dir: Path) -> None:
    """GeneratorExit is not a failure: the run is ok and complete."""

    @trace
    async def numbers() -> AsyncIterator[int]:
        record_state("open")
        yield 1
        yield 2

    async def consume() -> None:
        agent = numbers()
        async for _ in agent:
            break
        await agent.aclose()

    asyncio.run(consume())

    run = only_rundir(data_dir)
    assert (run.run["status"], run.types) == ("ok", ["RUN_START", "STATE_UPDATE", "RUN_END"])


def test_a_trace_inside_an_active_run_joins_it(data_dir: Path, read_runs: ReadRuns) -> None:
    """One run directory; in Vestige the inner function is a step of the run."""

    @trace("inner")
    def inner() -> bool:
        record_state("inside")
        return has_active_run()

    with traced_run("outer"):
        joined = inner()
        with traced_run("block"):
            record_state("also inside")

    run = only_rundir(data_dir)
    assert joined and not has_active_run()
    assert (run.run["run_name"], len(run.of("STATE_UPDATE"))) == ("outer", 2)
    (stored,) = [run for run in read_runs() if not run.info.implicit]
    assert [span.name for span in stored.spans if span.type == "step"] == ["inner", "block"]


def test_traced_run_is_also_async_a_decorator_and_reusable(data_dir: Path) -> None:
    block = traced_run("again")

    async def use() -> None:
        async with block:
            record_state(1)

    @block
    def decorated() -> None:
        record_state(2)

    with block:
        record_state(3)
    asyncio.run(use())
    decorated()

    runs = read_rundirs(data_dir)
    assert [run.run["run_name"] for run in runs] == ["again"] * 3
    assert sorted(run.of("STATE_UPDATE")[0]["payload"]["state"] for run in runs) == [1, 2, 3]


# --- where events belong --------------------------------------------------------------------------


def test_threads_pools_and_tasks_belong_to_the_run_that_started_them(data_dir: Path) -> None:
    """The real one loses what plain threads record."""

    async def tasks() -> None:
        async def one(number: int) -> None:
            await asyncio.sleep(0)
            record_tool_call(f"task {number}")

        await asyncio.gather(*(one(number) for number in range(3)))

    with traced_run("threads"):
        threads = [
            threading.Thread(target=record_tool_call, args=(f"thread {number}",))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda number: record_tool_call(f"pool {number}"), range(3)))
        asyncio.run(tasks())

    run = only_rundir(data_dir)
    names = sorted(event["name"] for event in run.of("TOOL_CALL"))
    assert names == [
        f"{where} {number}" for where in ("pool", "task", "thread") for number in range(3)
    ]
    assert run.run["counts"]["tool_calls"] == 9


def test_a_thread_from_before_the_run_belongs_to_the_only_one_that_is_open(data_dir: Path) -> None:
    """A worker that waits for jobs has no context of the run; of one open run it is a part."""
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        record_state("from the worker")
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    with traced_run("jobs"):
        go.set()
        done.wait(10)
    worker.join()

    assert only_rundir(data_dir).of("STATE_UPDATE")[0]["payload"]["state"] == "from the worker"


def test_two_runs_at_once_keep_their_own(data_dir: Path) -> None:
    """Concurrent tasks, each with a run: nothing crosses over."""

    @trace
    async def agent(number: int) -> None:
        for _ in range(5):
            record_state(number)
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(agent(number) for number in range(4)))

    asyncio.run(all_of_them())

    states = [
        {event["payload"]["state"] for event in run.of("STATE_UPDATE")}
        for run in read_rundirs(data_dir)
    ]
    assert sorted(map(tuple, states)) == [(0,), (1,), (2,), (3,)]


def test_one_traced_run_is_left_by_whoever_entered_it(data_dir: Path) -> None:
    """Two threads that share it: the first to leave ends its own run, and not the other's."""
    shared = traced_run("shared")
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with shared:
            first_in.set()
            second_in.wait()
            record_tool_call("first")
        first_out.set()

    def second() -> None:
        first_in.wait()
        with shared:
            second_in.set()
            first_out.wait()
            record_tool_call("second")

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = read_rundirs(data_dir)
    assert sorted(run.events[1]["name"] for run in found) == ["first", "second"]


def test_threads_that_begin_at_once_have_one_recorder(data_dir: Path) -> None:
    """Each would have its own journal and its own process record."""
    start, found = threading.Barrier(8), []

    def begin() -> None:
        start.wait()
        found.append(run_lifecycle.recorder())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(one) for one in found}) == 1


@pytest.mark.slow
def test_spans_of_vestige_in_the_same_run_are_events_with_parent_and_duration(
    data_dir: Path,
) -> None:
    """Whichever recorder made them: the ambient one, or one with a home of its own."""
    other = vestige.Recorder(data_dir.parent / "other home")
    with traced_run("mixed"):
        with vestige.current_span().span("search", type="tool", body={"q": 1}) as tool:
            with tool.span("gpt-4", type="llm", body="hi") as model:
                model.end(body="hello", attributes={"model": "gpt-4", "input_tokens": 3})
            record_state("inside the tool's block")
        with other.logger("elsewhere").span("fetch", type="tool") as fetch:
            fetch.end(body="page")
    other.close()

    run = only_rundir(data_dir)
    by_name = {event["name"]: event for event in run.events}
    assert by_name["gpt-4"]["parent_id"] == by_name["search"]["event_id"]
    assert by_name["state"]["parent_id"] == by_name["search"]["event_id"]
    assert by_name["search"]["parent_id"] == run.events[0]["event_id"]
    assert by_name["search"]["payload"] == {
        "tool_name": "search",
        "args": {"q": 1},
        "result": None,
        "status": "ok",
        "error": None,
    }
    assert isinstance(by_name["search"]["duration_ms"], int)
    assert by_name["gpt-4"]["payload"]["usage"]["prompt_tokens"] == 3
    assert by_name["fetch"]["payload"]["result"] == "page"
    assert by_name["state"]["duration_ms"] is None


def test_outside_any_run_nothing_is_recorded_and_nothing_raised(data_dir: Path) -> None:
    record_state(1)
    record_tool_call("x")
    record_llm_call("m")

    assert not has_active_run()
    assert not data_dir.exists()


# --- what a value may be --------------------------------------------------------------------------


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("text", "text"),
        ('{"looks": "like JSON"}', '{"looks": "like JSON"}'),
        ("  [1]", "  [1]"),
        ("", ""),
        ({"a": [1, None, True, 0.5]}, {"a": [1, None, True, 0.5]}),
        ([1, "two"], [1, "two"]),
        ((1, 2), [1, 2]),
        (5, 5),
        (0.25, 0.25),
        (True, True),
        (None, None),
        (float("nan"), "NaN"),
        ({"x": float("inf")}, {"x": "Infinity"}),
        (b"bytes", "bytes"),
        (b"\xff\xfe", "base64://4="),
        ("half \ud83d of one", "half \\ud83d of one"),
        ({"\ud83d": "\udc00"}, {"\\ud83d": "\\udc00"}),
        (2**70, str(2**70)),
        ({1: 2}, {"1": 2}),
        (Hostile(), "<unprintable Hostile>"),
    ],
)
def test_any_value_is_kept_as_strict_json(data_dir: Path, value: Any, stored: Any) -> None:
    """Text stays text, objects stay objects; what JSON cannot hold has a defined form."""
    with traced_run("values"):
        record_tool_call("t", value, value)
        record_llm_call("m", prompt=value, response=value)
        record_state(value, diff=value)

    tool, model, state = only_rundir(data_dir).events[1:4]
    assert tool["payload"]["args"] == stored == tool["payload"]["result"]
    assert model["payload"]["prompt"] == stored == model["payload"]["response"]
    assert state["payload"] == {"state": stored, "diff": stored}


def test_a_difference_without_a_state_stays_one(data_dir: Path) -> None:
    with traced_run("diff"):
        record_state(diff={"a": 1})

    assert only_rundir(data_dir).events[1]["payload"] == {"state": None, "diff": {"a": 1}}


def test_usage_is_intact_whatever_it_comes_as(data_dir: Path) -> None:
    """A dict, an SDK's object, other names for the same counts, more than three of them."""

    class Usage:
        prompt_tokens = 4
        completion_tokens = 5

    with traced_run("usage"):
        record_llm_call("a", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
        record_llm_call("b", usage=Usage())
        record_llm_call("c", usage={"input_tokens": 6, "output_tokens": 7, "cached_tokens": 8})
        record_llm_call("d", usage={"prompt_tokens": "9"})
        record_llm_call("e", usage=[1, 2])

    usages = [event["payload"]["usage"] for event in only_rundir(data_dir).of("LLM_CALL")]
    assert usages == [
        {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9},
        {"prompt_tokens": 6, "completion_tokens": 7, "total_tokens": None, "cached_tokens": 8},
        {"prompt_tokens": "9", "completion_tokens": None, "total_tokens": None},
        None,
    ]


def test_errors_of_calls_are_kept_in_their_events(data_dir: Path) -> None:
    """An exception, a text or a dict; given without a status, it still is an error."""
    with traced_run("errors"):
        record_tool_call("a", status="error", error=ValueError("boom"))
        record_tool_call("b", error="text")
        record_llm_call("c", error={"error_type": "T", "message": "m", "code": 7})
        record_tool_call("d", status="weird")

    run = only_rundir(data_dir)
    payloads = [event["payload"] for event in run.events[1:-1]]
    assert [payload["status"] for payload in payloads] == ["error", "error", "error", "ok"]
    assert [(payload["error"] or {}).get("error_type") for payload in payloads] == [
        "ValueError",
        "Error",
        "T",
        None,
    ]
    assert payloads[2]["error"]["details"] == {"code": 7}
    assert run.run["counts"]["errors"] == 0
    assert run.run["status"] == "ok"


def test_meta_is_the_callers(data_dir: Path) -> None:
    with traced_run("meta"):
        record_state(1, meta={"tags": ["a"], "n": 1})
        record_tool_call("t", meta="no dict")  # type: ignore[arg-type]

    state, tool = only_rundir(data_dir).events[1:3]
    assert state["meta"] | {"vestige": 0} == {"tags": ["a"], "n": 1, "vestige": 0}
    assert tool["meta"]["value"] == "no dict"


def test_long_bodies_are_cut_in_the_event_and_whole_in_vestige(
    data_dir: Path, read_runs: ReadRuns
) -> None:
    """Also one that is too long for a journal line, and goes to a file of its own."""
    with traced_run("long"):
        record_tool_call("t", "x" * 1_000_000, {"page": "y" * 1_000_000})

    (event,) = only_rundir(data_dir).of("TOOL_CALL")
    (stored,) = [run for run in read_runs() if not run.info.implicit]
    (span,) = [span for span in stored.spans if span.type == "tool"]
    for text in (event["payload"]["args"], event["payload"]["result"]["page"]):
        assert text.endswith("__TRUNCATED__") and len(text) == 20_000
    assert span.input is not None and span.input.size_bytes == 1_000_000
