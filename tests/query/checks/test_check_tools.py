"""Tool calls: who requested them, what was on offer, what ran, and how often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.planted_bugs import (
    answer,
    call,
    findings,
    recording,
    request,
    requested_calls,
    result,
    think,
    use,
)
from support.programs import RunProgram
from vestige.home import Home
from vestige.query.checks.process import failed_starts
from vestige.query.checks.tools import failed_tools, orphan_calls, tool_calls
from vestige.query.checks.tools.argument_schema import find_problem

OSLO = {"city": "Oslo"}


def test_a_failed_tool_is_the_cause_and_its_requester_is_linked(home: Home) -> None:
    with recording(home) as run:
        producer = think(run, request(), answer(call(OSLO, "call_1")))
        failed = use(run, call_id="call_1", error=ConnectionError("503 from rates.internal"))
        think(run, request(), answer(text="sorry"))

    (found,) = findings(home, failed_tools.failed_tool)

    assert (found.kind, found.cause) == ("tool/failed", failed.id)
    assert found.evidence == [failed.id, producer.id]
    assert "503 from rates.internal" in found.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such city: Atlantis"),
        TypeError("weather() got an unexpected keyword argument 'town'"),
        ValueError("1 validation error for weather: field required"),
    ],
)
def test_the_model_is_the_cause_if_the_error_is_about_its_arguments(
    home: Home, error: Exception
) -> None:
    with recording(home) as run:
        think(run, request(), answer(call({"city": "Rome"}, "call_0")))
        use(run, call_id="call_0")
        producer = think(run, request(), answer(call({"city": "Atlantis"}, "call_1")))
        failed = use(run, '{"city": "Atlantis"}', "call_1", error=error)
        think(run, request(), answer(text="sorry"))

    (found,) = findings(home, failed_tools.failed_tool)

    assert (found.kind, found.cause) == ("tool/bad-arguments", producer.id)
    assert found.evidence == [producer.id, failed.id]


def test_a_search_without_results_had_valid_arguments(home: Home) -> None:
    with recording(home) as run:
        producer = think(run, request(), answer(call({"city": "Atlantis"}, "call_1")))
        use(run, '{"city": "Atlantis"}', "call_1", error=LookupError("No results for Atlantis"))

    (found,) = findings(home, failed_tools.failed_tool)

    assert (found.kind, found.cause) == ("tool/no-results", producer.id)
    assert "found nothing for the model's query" in found.message


def test_the_innermost_cause_of_a_tool_error_is_named(home: Home) -> None:
    error = RuntimeError("tool failed")
    error.__cause__ = ConnectionError("503")
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        use(run, error=error)

    (found,) = findings(home, failed_tools.failed_tool)

    assert "caused by ConnectionError: 503" in found.message


def test_a_tool_that_works_or_could_not_start_has_no_such_finding(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        use(run)
        use(run, error=RuntimeError("sh: weather: command not found"))

    assert findings(home, failed_tools.failed_tool) == []


def test_a_call_that_never_ran_is_an_orphan(home: Home) -> None:
    with recording(home) as run:
        first = think(run, request(), answer(call(OSLO, "call_1"), call(OSLO, "call_2")))
        use(run, call_id="call_1")

    (found,) = findings(home, orphan_calls.orphan_call)

    assert found.cause == first.id
    assert "weather" in found.message


def test_a_transfer_to_another_agent_is_not_an_orphan(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call({"agent": "refunds"}, name="transfer_to_agent")))
        think(run, request(text="as the refund agent"), answer(text="done"))

    assert findings(home, orphan_calls.orphan_call) == []


@pytest.mark.parametrize(("before", "found"), [(False, 0), (True, 1)])
def test_a_call_that_another_agent_follows_may_have_started_it(
    home: Home, before: bool, found: int
) -> None:
    """A tool `book` may be the agent `booking desk`. One that ran earlier is not its answer."""
    with recording(home) as run:
        if before:
            run.child("booking desk", "agent").end()
        think(run, request(), answer(call(OSLO, name="book")))
        if not before:
            run.child("booking desk", "agent").end()
        use(run, call_id="call_9")

    assert len(findings(home, orphan_calls.orphan_call)) == found


def test_a_forced_tool_is_the_answer(home: Home) -> None:
    body = json.loads(request())
    body["tool_choice"] = {"type": "function", "function": {"name": "weather"}}
    with recording(home) as run:
        think(run, json.dumps(body), answer(call(OSLO)))

    assert findings(home, orphan_calls.orphan_call) == []


def test_a_result_that_was_sent_as_text_is_a_result(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        observation = {"role": "user", "content": "Observation: weather says 3 degrees"}
        think(run, request(observation), answer(text="3 degrees"))

    assert findings(home, orphan_calls.orphan_call) == []


def test_where_no_tools_are_recorded_nobody_knows_that_one_never_ran(home: Home) -> None:
    """Seen from the wire, a tool that hung or raised looks like one that was never called."""
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))

    (found,) = findings(home, orphan_calls.orphan_call)

    assert "it returned no result: it never ran, or did not finish" in found.message


def test_a_call_is_no_orphan_if_an_exception_ended_the_program_next(
    home: Home, run_program: RunProgram
) -> None:
    """The tool is a plain function, and raised: the exception says so."""
    source = f"""
import vestige

logger = vestige.default_recorder().logger("agent")
call = logger.span("chat", type="llm", attributes={{"model": "gpt-4o"}}, body={request()!r})
call.end(body={answer(call(OSLO))!r})
{{}}["Oslo"]
"""
    done = run_program(source)

    assert "KeyError" in done.stderr
    assert findings(home, orphan_calls.orphan_call, name="program.py") == []


def test_a_call_is_no_orphan_whose_result_is_in_the_next_request(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        think(run, request(requested_calls(call(OSLO)), result("rain")), answer(text="rain"))

    assert findings(home, orphan_calls.orphan_call) == []


def test_a_call_is_no_orphan_that_is_told_as_text(home: Home) -> None:
    """As smolagents writes its history: a call as the assistant's text, its result as the
    user's.
    """
    message = {
        "role": "assistant",
        "content": "Calling tools:\n[{'id': 'call_1', 'name': 'weather'}]",
    }
    seen = {"role": "user", "content": "Observation:\nrain"}
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        think(run, request(message, seen), answer(text="rain"))

    assert findings(home, orphan_calls.orphan_call) == []


def test_a_call_executed_twice(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        one, two = use(run), use(run)

    (found,) = findings(home, tool_calls.duplicate_result)

    assert (found.kind, found.cause) == ("duplicate-result/executions", two.id)
    assert one.id in found.evidence


def test_a_retry_after_an_error_and_an_id_used_anew_are_no_duplicates(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO, "call_1")))
        use(run, error=ValueError("busy"))
        use(run)
        for _ in range(2):
            think(run, request(), answer(call(OSLO, "call_0")))
            use(run, call_id="call_0")

    assert findings(home, tool_calls.duplicate_result) == []


def test_other_arguments_under_an_id_used_anew_are_another_call(home: Home) -> None:
    """Some providers repeat ids in every turn, and model calls may lack bodies."""
    with recording(home) as run:
        for city in ("Oslo", "Rome", "Bonn"):
            use(run, f'{{"city": "{city}"}}', "call_0")

    assert findings(home, tool_calls.duplicate_result) == []


def test_a_result_that_is_in_the_request_twice(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        ran = use(run)
        history = [requested_calls(call(OSLO)), result("rain"), result("rain")]
        bad = think(run, request(*history), answer(text="rain"))
        think(run, request(*history), answer(text="rain"))

    (found,) = findings(home, tool_calls.duplicate_result)

    assert (found.kind, found.cause) == ("duplicate-result/deliveries", bad.id)
    assert ran.id in found.evidence and "2 times" in found.message


def test_a_tool_that_is_not_on_offer(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        bad = think(run, request(), answer(call({}, name="wether")))

    (found,) = findings(home, tool_calls.unknown_tool)

    assert found.cause == bad.id
    assert "wether" in found.message and "weather" in found.message


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "city is required"),
        ({"city": 7}, "city should be string"),
        ({"city": "Oslo", "unit": "K"}, "unit is 'K'"),
        ({"city": "Oslo", "days": "two"}, "days should be integer"),
        ('{"city": "Os', "not JSON"),
    ],
)
def test_arguments_that_do_not_fit(home: Home, arguments: Any, word: str) -> None:
    with recording(home) as run:
        think(run, request(), answer(call({"city": "Rome", "unit": "C", "days": 2}, "call_0")))
        bad = think(run, request(), answer(call(arguments)))
        ran = use(run)

    (found,) = findings(home, tool_calls.bad_arguments)

    assert (found.cause, found.evidence) == (bad.id, [bad.id, ran.id])
    assert word in found.message


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"city": "Oslo"}}',
        'Sure.\n```json\n{"tool": "weather", "parameters": {"city": "Oslo"}}\n```',
        '<tool_call>\n{"name": "weather", "args": {}}\n</tool_call>',
        '<function=weather>{"city": "Oslo"}</function>',
        '<invoke name="weather"><parameter name="city">Oslo</parameter></invoke>',
        "<weather><city>Oslo</city></weather>",
        'commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
        '```tool_code\nprint(default_api.weather(city="Oslo"))\n```',
    ],
)
def test_a_call_that_came_as_text(home: Home, text: str) -> None:
    with recording(home) as run:
        bad = think(run, request(), answer(text=text))

    (found,) = findings(home, tool_calls.call_as_text)

    assert (found.severity, found.cause) == ("error", bad.id)


def test_a_real_call_and_talk_about_tools_are_no_call_as_text(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO), text='{"name": "weather", "arguments": {}}'))
        think(run, request(), answer(text="The weather tool takes a {city}; the weather is fine."))
        think(run, request(tools=()), answer(text='{"name": "weather", "arguments": {}}'))

    assert findings(home, tool_calls.call_as_text) == []


def test_an_answer_without_any_tool_is_a_hint(home: Home) -> None:
    with recording(home) as run:
        bad = think(run, request(text="What is the current weather?"), answer(text="Sunny."))

    (found,) = findings(home, tool_calls.answer_without_tool)

    assert (found.severity, found.basis, found.cause) == ("hint", "hypothesis", bad.id)


@pytest.mark.parametrize("text", ["Thank you!", "What is the current weather?"])
def test_no_hint_without_a_question_or_with_a_tool(home: Home, text: str) -> None:
    with recording(home) as run:
        if "?" in text:
            think(run, request(text=text), answer(call(OSLO)))
            use(run)
        think(run, request(text=text), answer(text="Sunny."))

    assert findings(home, tool_calls.answer_without_tool) == []


def test_tools_after_the_final_answer(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(call(OSLO)))
        use(run)
        final = think(run, request(), answer(text="rain"))
        late = use(run, call_id=None, name="search")

    (found,) = findings(home, tool_calls.steps_after_answer)

    assert found.cause == late.id
    assert found.evidence == [final.id, late.id]


def test_a_clients_span_around_the_wires_counts_once(home: Home) -> None:
    with recording(home) as run:
        with run.child("client", "llm") as outer:
            think(outer, request(), answer(call(OSLO)))
        use(run)
        with run.child("client", "llm") as outer:
            think(outer, request(requested_calls(call(OSLO)), result("rain")), answer(text="rain"))

    assert (
        findings(
            home,
            tool_calls.steps_after_answer,
            orphan_calls.orphan_call,
            tool_calls.duplicate_result,
        )
        == []
    )


def test_an_answer_and_then_another_turn_is_fine(home: Home) -> None:
    with recording(home) as run:
        think(run, request(), answer(text="hello"))
        think(run, request(), answer(call(OSLO)))
        use(run)
        think(run, request(), answer(text="rain"))

    assert findings(home, tool_calls.steps_after_answer) == []


@pytest.mark.parametrize(
    ("name", "type", "error"),
    [
        ("verify", "step", FileNotFoundError("pytest")),
        ("suite", "test", ConnectionRefusedError("db")),
        ("grade answer", "step", RuntimeError("sh: 1: pytest: command not found")),
        ("run", "process", PermissionError("/usr/bin/x")),
    ],
)
def test_a_verifier_that_could_not_start(
    home: Home, name: str, type: str, error: Exception
) -> None:
    with recording(home) as run:
        verifier = run.child(name, type)
        verifier.end(error)
        raise RuntimeError("task failed")

    (found,) = findings(home, failed_starts.infrastructure_failure)

    assert (found.kind, found.cause) == ("infrastructure/verifier", verifier.id)


def test_a_verifier_with_exit_code_127_in_a_run_with_no_reward(home: Home) -> None:
    with recording(home) as run:
        verifier = run.child("verify", "step")
        verifier.end(attributes={"exit_code": 127})
        run.set_attributes(reward=0)

    (found,) = findings(home, failed_starts.infrastructure_failure)

    assert found.cause == verifier.id and "127" in found.message


def test_an_agent_that_fails_by_itself_is_not_excused(home: Home) -> None:
    with recording(home) as run:
        run.child("verify", "step").end(AssertionError("expected 4, got 5"))
        use(run, name="read_file", error=FileNotFoundError("nope.txt"))
        raise RuntimeError("task failed")

    assert findings(home, failed_starts.infrastructure_failure) == []


def test_a_verifier_that_could_not_start_does_not_matter_in_a_run_that_succeeds(home: Home) -> None:
    with recording(home) as run:
        run.child("verify", "step").end(FileNotFoundError("pytest"))

    assert findings(home, failed_starts.infrastructure_failure) == []


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (None, {"a": 1}, None),
        ({"type": "object"}, [], "the arguments should be object, but is array"),
        ({"type": ["string", "null"]}, None, None),
        ({"type": "STRING", "nullable": True}, None, None),
        ({"type": "integer"}, True, "the arguments should be integer, but is boolean"),
        ({"type": "integer"}, 2.0, None),
        ({"items": {"type": "integer"}}, [1, "2"], "[1] should be integer, but is string"),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": {}}, "a.b is required and missing"),
        ({"additionalProperties": False}, {"x": 1}, "x is not a parameter of the tool"),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            1,
            "the arguments does not match any schema of anyOf",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
        ({"$defs": {"N": {"type": "number"}}, "$ref": "#/$defs/N"}, "x", "should be number"),
        ({"$ref": "#"}, 1, None),
        ({"$ref": "#/a", "a": {"$ref": "#/a"}}, 1, None),
        ({"type": "STRING", "enum": ["a"], "nullable": True}, None, None),
        ({"minimum": 3}, 2, "the arguments is 2, below 3"),
        ({"type": "date", "format": "what"}, "x", None),
    ],
)
def test_what_fits_a_schema(schema: Any, value: Any, problem: str | None) -> None:
    found = find_problem(schema, value)

    assert found is None if problem is None else problem in (found or "")


def test_a_schema_of_branches_that_refer_to_themselves_is_left_in_time() -> None:
    """Two branches at each of thirty levels are a thousand million."""
    again = {"$ref": "#/$defs/tree"}
    schema = {"$defs": {"tree": {"anyOf": [again, again]}}, **again}

    assert find_problem(schema, {}) is None
