"""Guardrails and live loop warnings of the AgentDbg face."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.run_directories import only_rundir, read_rundirs
from vestige.agentdbg import (
    AgentDbgGuardrailExceeded,
    AgentDbgLoopAbort,
    record_llm_call,
    record_state,
    record_tool_call,
    trace,
    traced_run,
)


def llm(number: int) -> None:
    record_llm_call(f"m{number}")


def tool(number: int) -> None:
    record_tool_call(f"t{number}")


@pytest.mark.parametrize(
    ("limit", "value", "record", "passes"),
    [
        ("max_llm_calls", 2, llm, 2),
        ("max_tool_calls", 2, tool, 2),
        ("max_events", 3, record_state, 2),  # RUN_START is one
        ("max_llm_calls", 0, llm, 0),
    ],
)
def test_a_limit_of_n_stops_the_program_at_n_plus_1_after_the_event_is_written(
    data_dir: Path, limit: str, value: int, record: Callable[[int], None], passes: int
) -> None:
    done = 0
    block = traced_run("limited", **{limit: value})  # type: ignore[arg-type]  # one of them
    with pytest.raises(AgentDbgGuardrailExceeded) as caught, block:
        for number in range(10):
            record(number)
            done += 1

    run = only_rundir(data_dir)
    assert done == passes
    assert (caught.value.guardrail, caught.value.threshold) == (limit, value)
    assert caught.value.actual == value + 1
    assert caught.value.message == str(caught.value) == f"guardrail {limit}: {value + 1} > {value}"
    assert len(run.events) == 1 + passes + 1 + 2
    assert run.types[-2:] == ["ERROR", "RUN_END"]
    assert run.events[-2]["payload"]["error_type"] == "AgentDbgGuardrailExceeded"
    assert (run.run["status"], run.run["counts"]["errors"]) == ("error", 1)


def test_an_agents_own_except_cannot_talk_it_away(data_dir: Path) -> None:
    """The real one is an Exception: agents that retry on errors swallow it and go on."""

    @trace(max_tool_calls=2)
    def stubborn() -> None:
        for number in range(10):
            try:
                record_tool_call("t", {"n": number})
            except Exception:  # noqa: S112  # what the test is about
                continue

    with pytest.raises(AgentDbgGuardrailExceeded):
        stubborn()

    run = only_rundir(data_dir)
    assert run.run["counts"]["tool_calls"] == 3
    assert run.run["status"] == "error"


def test_even_swallowed_whole_it_is_recorded_and_fails_the_run(data_dir: Path) -> None:
    """A bare `except:` may hide it from the program, not from a reader of the run."""
    with traced_run("hidden", max_tool_calls=0):
        try:
            record_tool_call("t")
        except BaseException:  # what the test is about
            pass

    run = only_rundir(data_dir)
    assert (run.run["status"], run.types[-2:]) == ("error", ["ERROR", "RUN_END"])
    assert run.events[-2]["payload"]["message"] == "guardrail max_tool_calls: 1 > 0"


def test_time_is_looked_at_with_every_event(data_dir: Path) -> None:
    block = traced_run("slow", max_duration_s=0)
    with pytest.raises(AgentDbgGuardrailExceeded, match="max_duration_s: elapsed"), block:
        record_state(1)

    assert only_rundir(data_dir).run["status"] == "error"


def test_settings_set_limits_and_the_code_may_set_others(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTDBG_MAX_EVENTS", "2")
    with pytest.raises(AgentDbgGuardrailExceeded), traced_run("by settings"):
        record_state(1)
        record_state(2)
    with traced_run("by code", max_events=3):
        record_state(1)
        record_state(2)

    assert [run.run["status"] for run in read_rundirs(data_dir)] == ["ok", "error"]


def test_limits_of_an_inner_trace_hold_while_it_lasts(data_dir: Path) -> None:
    with traced_run("outer"):
        record_tool_call("a")
        inner = traced_run("inner", max_tool_calls=1)
        with pytest.raises(AgentDbgGuardrailExceeded), inner:
            record_tool_call("b")
        record_tool_call("c")

    run = only_rundir(data_dir)
    assert run.run["counts"]["tool_calls"] == 3
    assert run.run["status"] == "error"


@pytest.mark.slow
def test_calls_that_vestige_recorded_count_too(data_dir: Path) -> None:
    """A span of type llm, from wherever, is a call of a model."""
    with pytest.raises(AgentDbgGuardrailExceeded), traced_run("mixed", max_llm_calls=1):
        for _ in range(3):
            with vestige.current_span().span("gpt-4", type="llm"):
                pass

    assert only_rundir(data_dir).run["counts"]["llm_calls"] == 2


def test_in_tasks_and_threads_it_stops_what_recorded_and_fails_the_run(data_dir: Path) -> None:
    async def use() -> Any:
        async def work() -> None:
            record_tool_call("in a task")

        return await asyncio.gather(work(), return_exceptions=True)

    with traced_run("tasks", max_tool_calls=0):
        (left,) = asyncio.run(use())
    with traced_run("threads", max_tool_calls=0):
        seen: list[BaseException] = []

        def work() -> None:
            try:
                record_tool_call("in a thread")
            except AgentDbgGuardrailExceeded as error:
                seen.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert isinstance(left, AgentDbgGuardrailExceeded) and len(seen) == 1
    assert [run.run["status"] for run in read_rundirs(data_dir)] == ["error", "error"]


def test_a_limit_that_makes_no_sense_is_a_word_and_no_limit(
    data_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with traced_run("odd", max_events=-1, max_llm_calls="many"):  # type: ignore[arg-type]  # a typo
        record_state(1)

    assert only_rundir(data_dir).run["status"] == "ok"
    assert capfd.readouterr().err.count("Ignored.") == 2


def test_a_process_pool_can_hand_it_over() -> None:
    for error in (AgentDbgGuardrailExceeded("a", 1, 2, "m"), AgentDbgLoopAbort(3, 4, "m")):
        copy = pickle.loads(pickle.dumps(error))

        assert vars(copy) == vars(error)


# --- loops ----------------------------------------------------------------------------------------


def test_a_loop_is_warned_of_once_with_its_evidence(data_dir: Path) -> None:
    with traced_run("loop"):
        for _ in range(6):
            record_tool_call("search", {"q": "same", "n": 1})
            record_tool_call("read", {"page": 1})

    run = only_rundir(data_dir)
    (warning,) = run.of("LOOP_WARNING")
    calls = [event["event_id"] for event in run.of("TOOL_CALL")]
    assert warning["payload"] == {
        "pattern": "TOOL_CALL:search -> TOOL_CALL:read",
        "repetitions": 3,
        "window_size": 6,
        "evidence_event_ids": calls[:6],
    }
    assert warning["name"] == warning["payload"]["pattern"]
    assert run.run["counts"]["loop_warnings"] == 1
    assert run.run["status"] == "ok"


def test_three_different_searches_are_no_loop(data_dir: Path) -> None:
    """And the same search with its keys in another order is the same."""
    with traced_run("different"):
        for number in range(6):
            record_tool_call("search", {"q": number})
    with traced_run("the same"):
        record_tool_call("search", {"a": 1, "b": 2})
        record_tool_call("search", {"b": 2, "a": 1})
        record_tool_call("search", {"a": 1, "b": 2})

    assert [len(run.of("LOOP_WARNING")) for run in read_rundirs(data_dir)] == [0, 1]


def test_a_loop_of_seven_is_found_and_settings_decide_how_many_rounds(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one finds no period above four."""

    def rounds(name: str) -> None:
        with traced_run(name):
            for _ in range(3):
                for number in range(7):
                    record_tool_call(f"t{number}")

    rounds("0 seven")
    monkeypatch.setenv("AGENTDBG_LOOP_REPETITIONS", "4")
    rounds("1 seven")
    monkeypatch.setenv("AGENTDBG_LOOP_REPETITIONS", "3")
    monkeypatch.setenv("AGENTDBG_LOOP_WINDOW", "6")
    rounds("2 seven")

    assert [len(run.of("LOOP_WARNING")) for run in read_rundirs(data_dir)] == [1, 0, 0]


def test_stop_on_loop_aborts_when_there_were_enough_repetitions(data_dir: Path) -> None:
    """Also when more are asked for than make a loop: the count goes on after the warning."""
    done = 0
    block = traced_run("stop", stop_on_loop=True, stop_on_loop_min_repetitions=5)
    with pytest.raises(AgentDbgLoopAbort) as caught, block:
        for _ in range(9):
            record_tool_call("t", {"q": 1})
            done += 1

    run = only_rundir(data_dir)
    assert (done, caught.value.guardrail, caught.value.actual) == (4, "stop_on_loop", 5)
    assert [run.run["counts"][what] for what in ("tool_calls", "loop_warnings", "errors")] == [
        5,
        1,
        1,
    ]
    assert run.of("ERROR")[0]["name"] == "AgentDbgLoopAbort"


@pytest.mark.parametrize("nested", [False, True])
def test_the_error_of_a_guardrail_names_it_with_its_limit(data_dir: Path, nested: bool) -> None:
    """As AgentDbg writes it, and its `assert --no-guardrails` looks for it."""

    def work() -> None:
        for number in range(5):
            llm(number)

    with pytest.raises(AgentDbgGuardrailExceeded), traced_run("limited", max_llm_calls=2):
        trace(work)() if nested else work()

    (error,) = (event for event in only_rundir(data_dir).events if event["event_type"] == "ERROR")
    fields = {key: error["payload"][key] for key in ("guardrail", "threshold", "actual")}
    assert fields == {"guardrail": "max_llm_calls", "threshold": 2, "actual": 3}
