"""Actions of agents: code that fails, answers without evidence, tools that were only announced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.planted_bugs import (
    answer,
    call,
    evidence_of,
    findings,
    recording,
    request,
    result,
    think,
    use,
)
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks import all_checks, run_checks
from vestige.query.checks.answers import (
    announced_calls,
    answer_origin,
    instructions,
    missing_task,
    unsupported_answers,
)
from vestige.query.checks.applicability import find_inapplicable
from vestige.query.checks.model import history, refusals
from vestige.query.checks.tools import failed_tools
from vestige.query.evidence import open_run
from vestige.query.failures.check import find_chains
from vestige.record.finding import Finding
from vestige.store.protocol import RunFilter
from vestige.transfer.temp_store import load_runs

TASK = "What did the museum charge in 2019?"


def code_step(run: Span, text: str, error: str | None = None, *, task: str = TASK) -> Span:
    """A step of an agent that writes code: the model call is inside, the error on the step."""
    step = run.child("Step", "step")
    called = think(step, request(text=task), answer(text=text))
    if error is not None:
        step.set_attributes({"error.type": "InterpreterError", "error.message": error})
    step.end(status="error" if error is not None else "ok")
    return called


# --- failed actions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Code execution failed at line 'x = y': the variable y is not defined", "action/failed"),
        ("Code parsing failed on line 3 due to: SyntaxError", "output/rejected"),
        ("Invalid JSON in the tool call", "output/rejected"),
        (
            "Error in code parsing or execution: Code execution failed at line 'import Bio' due "
            "to: ModuleNotFoundError: No module named 'Bio'",
            "action/failed",
        ),
    ],
)
def test_a_step_that_failed_leads_to_the_model_call_inside(
    home: Home, error: str, kind: str
) -> None:
    with recording(home) as run:
        code_step(run, "```py\nprint(1)\n```")
        called = code_step(run, "```py\nx = y\n```", error)

    (found,) = findings(home, failed_tools.failed_action)

    assert (found.kind, found.cause) == (kind, called.id)


def test_steps_that_succeed_have_no_failed_action(home: Home) -> None:
    with recording(home) as run:
        code_step(run, "```py\nprint(1)\n```")

    assert findings(home, failed_tools.failed_action) == []


def test_why_goes_from_a_failed_tool_to_the_model_call_that_requested_it(home: Home) -> None:
    with recording(home) as run:
        producer = think(run, request(), answer(call({"city": "Oslo"}, "call_1")))
        failed = use(run, call_id="call_1", error=ConnectionError("503"))
    catch_up(home)
    with vestige.open(home.root) as debugger:
        chain = debugger.why(failed.id).data()["chain"]

    assert [step["span_id"] for step in chain[:2]] == [failed.id, producer.id]
    assert chain[1]["relation"] == "requested"


# --- answers without evidence ---------------------------------------------------------------------


def test_an_answer_that_claims_a_lookup_without_one_is_found(home: Home) -> None:
    with recording(home) as run:
        called = think(
            run,
            request(text=TASK),
            answer(
                text="I have verified the price list. According to the museum, it was 33149 yen."
            ),
        )

    (found,) = findings(home, unsupported_answers.unsupported_answer)

    assert (found.kind, found.cause) == ("answer/no-evidence", called.id)
    assert "33149" in found.message


def test_research_that_was_claimed_and_not_done_is_found(home: Home) -> None:
    text = "My research (using our team member web_search) yielded these findings: 33149 yen."
    with recording(home) as run:
        called = think(run, request(text=TASK), answer(text=text))

    (found,) = findings(home, unsupported_answers.unsupported_answer)

    assert (found.kind, found.cause) == ("answer/no-evidence", called.id)


def test_an_answer_from_a_tool_result_is_supported(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(call({"city": "Oslo"})))
        use(run, output="the price was 33149 yen")
        think(
            run,
            request(result("the price was 33149 yen"), text=TASK),
            answer(text="I have checked it: according to the museum it was 33149 yen."),
        )

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_a_final_answer_from_memory_is_found_without_a_claim(home: Home) -> None:
    text = 'I know the museum.\n```py\nfinal_answer("33149 yen")\n```'
    with recording(home) as run:
        called = code_step(run, text)

    (found,) = findings(home, unsupported_answers.unsupported_answer)

    assert (found.kind, found.cause) == ("answer/no-evidence", called.id)
    assert "from memory" in found.message


def test_a_final_answer_that_a_tool_returned_is_healthy(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(call({"city": "Oslo"})))
        use(run, output="The museum charged 33149 yen in 2019.")
        code_step(run, '```py\nfinal_answer("33149 yen")\n```')

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_an_assumption_of_a_puzzle_is_healthy_and_assumed_data_is_not(home: Home) -> None:
    puzzle = "Let's assume that the first guard lies. Then the second one is honest."
    with recording(home) as run:
        think(run, request(text="Which guard lies?"), answer(text=puzzle))
    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_assumed_data_without_a_tool_is_found(home: Home) -> None:
    text = "Let's assume the search results are 12 and 14.\n```py\nprices = [12, 14]\n```"
    with recording(home) as run:
        called = code_step(run, text)

    (found,) = findings(home, unsupported_answers.unsupported_answer)

    assert (found.kind, found.cause) == ("answer/made-up", called.id)


def test_a_polite_answer_without_tools_is_healthy(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text="thanks!"), answer(text="You are welcome. Ask me anything."))

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_data_that_was_made_up_after_a_failed_tool_is_found(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(call({"city": "Oslo"})))
        use(run, error=ConnectionError("503"))
        text = "The tool failed. I will simulate the data.\n```py\nprices = [3, 4]\n```"
        called = code_step(run, text)

    (found,) = findings(home, unsupported_answers.unsupported_answer)

    assert (found.kind, found.cause) == ("answer/made-up", called.id)


@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        ("I will use made-up prices", True),
        ("the share of the population made up by the penguins on the island", False),
        ("the board is made up entirely of members", False),
    ],
)
def test_parts_that_make_up_a_whole_are_not_made_up(home: Home, words: str, is_found: bool) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(call({"city": "Oslo"})))
        use(run, error=ConnectionError("503"))
        code_step(run, f"Now {words}.\n```py\nprint(12)\n```")

    kinds = [found.kind for found in findings(home, unsupported_answers.unsupported_answer)]

    assert kinds == (["answer/made-up"] if is_found else [])


def test_a_task_that_asks_for_a_simulation_gets_one(home: Home) -> None:
    with recording(home) as run:
        code_step(run, "I simulate it.\n```py\nrun()\n```", task="Simulate 100 dice rolls.")

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_an_assumption_of_the_task_is_not_made_up(home: Home) -> None:
    with recording(home) as run:
        text = "```py\nask('It is assumed that all have the same age.')\n```"
        code_step(run, text, task="Assuming the same age, who is taller?")

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_an_assumption_about_the_result_of_a_tool_is_not_made_up(home: Home) -> None:
    with recording(home) as run:
        text = "```py\ndata = weather()\n# Assume that the list is in a member of it.\n```"
        think(run, request(text=TASK), answer(call({"city": "Oslo"}), text=text))
        use(run, error=ValueError("unsupported"))

    assert findings(home, unsupported_answers.unsupported_answer) == []


def test_a_simulation_that_computes_is_not_made_up(home: Home) -> None:
    with recording(home) as run:
        code_step(run, "```py\nload()\n```", "KeyError: 'dice'", task="Which is more likely?")
        text = "I simulate many rolls.\n```py\nroll()\n```"
        code_step(run, text, task="Which is more likely?")

    assert findings(home, unsupported_answers.unsupported_answer) == []


# --- announced tools ------------------------------------------------------------------------------

SEARCH = {"type": "function", "function": {"name": "web_search", "parameters": {}}}


def test_a_tool_that_was_announced_and_not_called_is_found(home: Home) -> None:
    with recording(home) as run:
        called = think(
            run,
            request(text=TASK, tools=[SEARCH]),
            answer(text="I will use the web_search tool.\n```py\nprint('searching')\n```"),
        )

    (found,) = findings(home, announced_calls.announced_call)

    assert (found.kind, found.cause) == ("tool/announced", called.id)
    assert "web_search" in found.message


def test_a_plan_whose_tools_nobody_called_is_found_at_the_answer(home: Home) -> None:
    with recording(home) as run:
        plan = think(
            run, request(text=TASK, tools=[SEARCH]), answer(text="1. Use web_search. 2. Answer.")
        )
        last = think(run, request(text=TASK, tools=[SEARCH]), answer(text="It was 12 yen."))

    (found,) = findings(home, announced_calls.announced_call)

    assert (found.cause, found.evidence) == (last.id, [last.id, plan.id])


def test_an_announced_tool_that_ran_is_healthy(home: Home) -> None:
    with recording(home) as run:
        think(
            run,
            request(text=TASK, tools=[SEARCH]),
            answer(call({}, name="web_search"), text="I will use web_search."),
        )
        use(run, "{}", name="web_search")
        think(run, request(result("12 yen"), text=TASK, tools=[SEARCH]), answer(text="12 yen."))

    assert findings(home, announced_calls.announced_call) == []


def test_a_tool_beside_the_step_of_its_model_call_ran(home: Home) -> None:
    """The steps of an agent contain model calls; its tools, whose names are text, are beside."""
    with recording(home) as run, run.span("ReAct", "agent") as agent:
        with agent.span("Predict") as step:
            think(step, request(text=TASK, tools=[SEARCH]), answer(text="Call web_search."))
        use(agent, "{}", name="web_search")
        with agent.span("Predict") as step:
            think(step, request(text=TASK, tools=[SEARCH]), answer(text="12 yen."))

    assert findings(home, announced_calls.announced_call) == []


@pytest.mark.parametrize(
    "text",
    [
        "Since the page could not be read using web_search, I answer: 12 yen.",
        "I answer without using web_search: 12 yen.",
        "After the failure I tried with web_search already: 12 yen.",
    ],
)
def test_a_tool_that_a_text_only_looks_back_at_is_not_announced(home: Home, text: str) -> None:
    with recording(home) as run:
        think(run, request(text=TASK, tools=[SEARCH]), answer(text=f"{text}\n```py\nend()\n```"))

    assert findings(home, announced_calls.announced_call) == []


def test_a_tool_that_was_used_before_is_not_announced_again(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK, tools=[SEARCH]), answer(call({}, name="web_search")))
        use(run, "{}", name="web_search")
        text = "With web_search I have it.\n```py\nprint('12 yen')\n```"
        think(run, request(result("12 yen"), text=TASK, tools=[SEARCH]), answer(text=text))

    assert findings(home, announced_calls.announced_call) == []


def test_a_tool_that_code_calls_is_not_only_announced(home: Home) -> None:
    offered = request(text=TASK, tools=[SEARCH])
    with recording(home) as run:
        skipped = "I will use our best tool web_search.\n```py\nprint('searching')\n```"
        first = think(run, offered, answer(text=skipped))
        done = "I will use web_search.\n```py\nprint(web_search('price'))\n```"
        think(run, offered, answer(text=done))
        think(run, offered, answer(text="Via web_search I know.\n```py\nprint('12 yen')\n```"))

    (found,) = findings(home, announced_calls.announced_call)

    assert found.evidence == [first.id]


# --- instructions ---------------------------------------------------------------------------------

PLAN = "Make a plan. After the last step, write the '<end_plan>' tag and stop there."


def test_a_required_tag_that_is_missing_is_found(home: Home) -> None:
    with recording(home) as run:
        called = think(run, request(text=PLAN), answer(text="1. Search. 2. Answer."))

    (found,) = findings(home, instructions.broken_instruction)

    assert (found.kind, found.cause) == ("instruction/missing-tag", called.id)


def test_a_tag_that_was_written_or_is_a_stop_sequence_is_healthy(home: Home) -> None:
    body = {**json.loads(request(text=PLAN)), "stop": ["<end_plan>"]}
    with recording(home) as run:
        think(run, request(text=PLAN), answer(text="1. Search.\n<end_plan>"))
        think(run, json.dumps(body), answer(text="1. Search."))

    assert findings(home, instructions.broken_instruction) == []


def test_an_answer_that_is_much_longer_than_allowed_is_found(home: Home) -> None:
    short = "Your answer must have at most 10 words."
    with recording(home) as run:
        think(run, request(text=short), answer(text="Ten words are enough."))
        called = think(run, request(text=short), answer(text="word " * 40))

    (found,) = findings(home, instructions.broken_instruction)

    assert found.cause == called.id
    assert "10 words" in found.message and "40" in found.message


# --- refusals of providers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (529, "overloaded_error: Overloaded", "overloaded"),
        (429, "rate_limit_error", "rate-limited"),
        (429, "You exceeded your current quota, please check your billing", "quota"),
        (401, "invalid x-api-key", "not-allowed"),
        (400, "flagged as potentially violating our usage policy", "policy"),
        (400, "This model's maximum context length is 128000 tokens", "too-long"),
        (None, "litellm.Timeout: Request timed out", "timeout"),
        (None, "Connection error.", "not-reached"),
        (500, "internal error", "server-error"),
        (400, "messages: roles must alternate", None),
    ],
)
def test_a_refusal_is_classified_by_status_and_text(
    status: int | None, text: str, reason: str | None
) -> None:
    assert refusals.classify_refusal(status, text) == reason


def test_a_policy_refusal_is_not_the_fault_of_the_history(home: Home) -> None:
    error = {"error": {"message": "tool_calls content flagged by our usage policy", "code": None}}
    with recording(home) as run:
        span = run.child("chat", "llm", {"status_code": 400, "url": "https://x"}, request())
        span.end(json.dumps(error), status="error")

    assert findings(home, history.invalid_history) == []


# --- logs of messages -----------------------------------------------------------------------------


def _check_log(tmp_path: Path, history_: list[dict[str, Any]]) -> tuple[list[Finding], list[Any]]:
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"question": "What did it cost?", "history": history_}))
    temporary = load_runs(path)
    try:
        (info,) = temporary.store.list_runs(RunFilter())
        evidence = open_run(temporary.store, info.id)
        found, _, failed = run_checks(evidence)
        assert failed == {}
        indexes = {s.id: s.attributes.get("message_index") for s in evidence.run.spans}
        chains = find_chains(evidence.run, found)
        return [chain[0] for chain in chains], [indexes.get(c[0].cause or "") for c in chains]
    finally:
        temporary.close()


def test_the_message_before_the_first_error_leads(tmp_path: Path) -> None:
    found, indexes = _check_log(
        tmp_path,
        [
            {"role": "assistant", "name": "Planner", "content": "Compute the cost."},
            {"role": "user", "name": "Coder", "content": "Here.\n```python\ncost()\n```"},
            {
                "role": "user",
                "name": "Computer_terminal",
                "content": "exitcode: 1 (execution failed)\nCode output: Traceback (most recent "
                "call last):\nNameError: name 'cost' is not defined",
            },
            {"role": "user", "name": "Coder", "content": "The cost was **4711** crowns, I think."},
        ],
    )
    assert (found[0].kind, indexes[0]) == ("action/failed", 1)


@pytest.mark.parametrize(
    ("output", "reported"),
    [
        ("exitcode: 0 (execution succeeded)\nCode output: Error: cannot open a.mp4", "cannot open"),
        ("exitcode: 0 (execution succeeded)\nCode output: []", "printed []"),
        ("exitcode: 0 (execution succeeded)\nCode output: ", "printed nothing"),
        ("exitcode: 1 (execution failed)\nCode output: unknown language json", "language json"),
    ],
)
def test_code_that_printed_only_an_error_or_nothing_leads(
    tmp_path: Path, output: str, reported: str
) -> None:
    found, indexes = _check_log(
        tmp_path,
        [
            {"role": "assistant", "name": "Planner", "content": "Compute the cost."},
            {"role": "user", "name": "Coder", "content": "Here.\n```python\nprint(cost())\n```"},
            {"role": "user", "name": "Computer_terminal", "content": output},
        ],
    )
    assert (found[0].kind, indexes[0]) == ("action/failed", 1)
    assert reported in found[0].message


def test_a_command_that_prints_nothing_has_not_failed(tmp_path: Path) -> None:
    found, _ = _check_log(
        tmp_path,
        [
            {"role": "assistant", "name": "Planner", "content": "Prepare the folder."},
            {"role": "user", "name": "Coder", "content": "Here.\n```sh\nmkdir a\n```"},
            {
                "role": "user",
                "name": "Computer_terminal",
                "content": "exitcode: 0 (execution succeeded)\nCode output: ",
            },
        ],
    )
    assert [each.kind for each in found if each.kind == "action/failed"] == []


def test_an_answer_that_no_tool_returned_is_traced_to_its_first_message(tmp_path: Path) -> None:
    log = [
        {"role": "assistant", "name": "Planner", "content": "Find out what it cost."},
        {"role": "user", "name": "Expert", "content": "The tickets were sold for 4711 crowns."},
        {"role": "user", "name": "Checker", "content": "I agree with the expert, this is right."},
        {"role": "user", "name": "Planner", "content": "FINAL ANSWER: 4711 crowns"},
    ]
    found, indexes = _check_log(tmp_path, log)
    assert [(f.kind, i) for f, i in zip(found, indexes, strict=True)] == [("answer/origin", 1)]
    assert found[0].severity == "hint"  # nothing in the log shows that it failed

    uncertain = [*log[:-1], {**log[-1], "content": "It is unclear. FINAL ANSWER: 4711 crowns"}]
    found, _ = _check_log(tmp_path, uncertain)
    assert found[0].severity == "warning"


def test_an_answer_that_a_tool_returned_is_supported(tmp_path: Path) -> None:
    log = [
        {"role": "assistant", "name": "Planner", "content": "Find out what it cost."},
        {"role": "user", "name": "Coder", "content": "I look.\n```python\nlook()\n```"},
        {
            "role": "user",
            "name": "Computer_terminal",
            "content": "exitcode: 0 (execution succeeded)\nCode output: it cost 4711 crowns",
        },
        {"role": "user", "name": "Coder", "content": "The tool says that it cost 4711 crowns."},
    ]
    found, _ = _check_log(tmp_path, log)
    assert [f.kind for f in found if f.severity != "hint"] == []


def test_origin_is_not_applicable_to_recorded_runs(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(text="FINAL ANSWER: 4711 crowns"))
    with evidence_of(home) as evidence:
        assert list(answer_origin.answer_origin(evidence)) == []


# --- the task -------------------------------------------------------------------------------------

LONG_TASK = "Which museum in Stockholm charged visitors more than forty crowns during 2019?"


def _ask(home: Home, task: str, *prompts: str) -> list[Finding]:
    with recording(home) as root:
        agent = root.child("Agent", "agent", body=task)
        for prompt in prompts:
            think(agent, request(text=prompt), answer(text="The Vasa Museum did."))
        agent.end()
    return findings(home, missing_task.task_not_passed)


def test_a_task_that_no_model_call_received_is_found(home: Home) -> None:
    other = "Debug the parser: it reports an unknown language."
    (found,) = _ask(home, LONG_TASK, other, "Now write a test for it.")
    assert found.kind == "task/not-passed"
    assert "0 of the 9 words" in found.message


@pytest.mark.parametrize(
    ("task", "prompts"),
    [
        (LONG_TASK, ["You are a guide.", f"Question: {LONG_TASK}"]),
        (LONG_TASK, ["List museums in Stockholm.", "Which charged forty crowns in 2019?"]),
        (json.dumps({"question": LONG_TASK}), [f"Question: {LONG_TASK.lower()}"]),
        ("order 5001", ["The customer wants a refund."]),
        (json.dumps({"path": "reports/stockholm", "limit": 40}), ["Summarize this text."]),
        (LONG_TASK, []),
    ],
)
def test_a_task_in_a_prompt_in_parts_or_as_an_id_was_passed(
    home: Home, task: str, prompts: list[str]
) -> None:
    assert _ask(home, task, *prompts) == []


# --- checks that had nothing to look at -----------------------------------------------------------


def test_a_check_without_anything_to_look_at_has_not_passed(home: Home) -> None:
    with recording(home) as run:
        run.child("parse", "step").end()
    with evidence_of(home) as evidence:
        names = [check.name for check in all_checks()]
        inapplicable = find_inapplicable(evidence.run, names, evidence)

    assert {"failed-tool", "invalid-history", "cache-miss", "duplicate-delivery"} <= {*inapplicable}
    assert {"crash", "uncaught-exception"}.isdisjoint(inapplicable)


def test_a_check_of_model_calls_applies_to_a_run_with_one(home: Home) -> None:
    with recording(home) as run:
        think(run, request(text=TASK), answer(text="It was closed."))
    with evidence_of(home) as evidence:
        names = ["invalid-history", "unsupported-answer", "failed-tool"]
        inapplicable = find_inapplicable(evidence.run, names, evidence)

    assert inapplicable == ["failed-tool"]


@pytest.mark.parametrize(("sent", "received"), [(None, None), ("[[", '{"shape": "unknown"}')])
def test_a_check_of_contents_does_not_apply_without_readable_bodies(
    home: Home, sent: str | None, received: str | None
) -> None:
    with recording(home) as run:
        run.child("chat", "llm", body=sent).end(received)
        run.child("look", "tool").end()
    names = ["unsupported-answer", "task-not-passed", "soft-error", "failed-call", "failed-tool"]
    with evidence_of(home) as evidence:
        inapplicable = find_inapplicable(evidence.run, names, evidence)

    assert inapplicable == ["unsupported-answer", "task-not-passed", "soft-error"]
