"""`transcript`: a run read like a chat, nothing twice, nothing left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.programs import Golden, run_in
from support.refund_desk import answer, ask, record_desk
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.errors import UsageError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.trajectory.seen_contents import REPEAT_LENGTH
from vestige.recorder import Recorder


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debugger]:
    home = Home(tmp_path_factory.mktemp("transcript") / "home")
    record_desk(home)
    with vestige.open(home.root) as opened:
        yield opened


def items(debugger: Debugger, id: str = "r3", **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = debugger.transcript(id, **options).data()["items"]
    return found


def test_of_each_request_only_what_is_new_is_told(desk: Debugger) -> None:
    """A model is sent its whole history again, every turn; a reader wants it once."""
    shown = items(desk)
    messages = [(item["role"], item["text"]["text"]) for item in shown if item["kind"] == "message"]
    calls = [item for item in shown if item["kind"] == "call"]

    assert messages == [
        ("system", "You are the refund desk. Be brief, and look before you pay."),
        ("user", "Please refund A-18."),
        ("system", "You are the fraud desk."),
        ("user", "Is A-18 fishy?"),
    ]
    assert [call["text"]["text"] for call in calls] == [
        "Let me look.",
        "I ask the fraud desk first.",
        "No, it is not.",
        "",
        "I could not pay it back.",
    ]
    assert [(call["messages"], call["repeated"]) for call in calls][:2] == [(2, 0), (4, 4)]


def test_a_tool_call_stands_with_its_result_and_who_asked(desk: Debugger) -> None:
    tools = {item["name"]: item for item in items(desk) if item["kind"] == "tool"}
    calls = [call for item in items(desk) if item["kind"] == "call" for call in item["calls"]]

    assert list(tools) == ["lookup_order", "ask_fraud", "refund"]
    assert tools["lookup_order"]["arguments"]["text"] == '{"order":"A-18"}'
    assert tools["lookup_order"]["result"]["text"] == '{"state": "shipped"}'
    assert tools["refund"]["is_error"]
    assert tools["refund"]["error"] == "ValueError: no such order: 0"
    assert [call["span"] for call in calls] == [tool["span"] for tool in tools.values()]
    assert all(tool["asked_by"] for tool in tools.values())


def test_a_sub_agent_stands_below_the_tool_that_it_ran_in(desk: Debugger) -> None:
    shown = items(desk)
    tool = next(item for item in shown if item.get("name") == "ask_fraud")
    answer = next(
        item for item in shown if item["kind"] == "call" and item["text"]["text"].startswith("No,")
    )

    assert (answer["agent"], answer["depth"]) == ("fraud desk", 1)
    assert tool["steps"] == [answer["step"]]


def test_a_run_that_failed_says_so_at_its_end(desk: Debugger) -> None:
    last = items(desk)[-1]

    assert (last["kind"], last["type"]) == ("error", "RuntimeError")
    assert last["text"]["text"] == "RuntimeError: refund failed"
    assert last["at_us"] > items(desk)[-2]["at_us"]
    assert "error" not in [item["kind"] for item in items(desk, "r2")]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_put_together_are_the_whole(desk: Debugger, limit: int) -> None:
    """A cursor neither skips nor repeats, and a page says what the whole would."""
    complete = items(desk)
    pages: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = desk.transcript("r3", after=after, limit=limit).data()
        pages += page["items"]
        after = page["next"]
        if after is None:
            break

    assert pages == complete
    assert items(desk, after=complete[-1]["cursor"]) == []


def test_a_span_is_a_place_to_go_on_from(desk: Debugger) -> None:
    refund = next(item for item in items(desk) if item.get("name") == "refund")
    after = items(desk, after=refund["span"])

    assert [item["kind"] for item in after] == ["log", "call", "error"]


@pytest.mark.parametrize("after", ["r3.s99", "s1.x", "l1-0.0", "x", "r2.s1.s2"])
def test_a_place_that_is_none_is_refused_in_one_line(desk: Debugger, after: str) -> None:
    with pytest.raises(UsageError) as refused:
        desk.transcript("r3", after=after)

    assert "\n" not in str(refused.value)


def test_a_terminal_shows_it_like_a_chat(desk: Debugger, golden: Golden) -> None:
    golden("transcript.txt", desk.transcript("r3").text() + "\n")


def test_a_tool_that_was_not_recorded_gets_its_result_from_the_next_request(home: Home) -> None:
    """Only the wire was recorded: the tool's result is in the next request to the model."""
    call = answer("", ("toolu_1", "lookup_order", {"order": "7"}))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "shipped"}
    first = [{"role": "user", "content": "Where is 7?"}]
    second = [
        *first,
        {"role": "assistant", "content": call["content"]},
        {"role": "user", "content": [result]},
    ]
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("c", "llm", body=json.dumps(ask(first))).end(body=json.dumps(call))
        run.child("c", "llm", body=json.dumps(ask(second))).end(body=json.dumps(answer("Shipped.")))
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)
    (tool,) = [item for item in shown if item["kind"] == "tool"]

    assert [item["kind"] for item in shown] == ["message", "message", "call", "tool", "call"]
    assert (tool["name"], tool["status"]) == ("lookup_order", "answered")
    assert tool["result"]["text"] == "shipped"


def test_a_history_that_began_before_the_run_is_told_whole(home: Home) -> None:
    """The first request brings answers, calls and results that no span of this run has."""
    old = answer("I look.", ("toolu_0", "lookup_order", {"order": "7"}))
    result = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "shipped"}
    history = [
        {"role": "user", "content": "Where is 7?"},
        {"role": "assistant", "content": old["content"]},
        {"role": "user", "content": [result]},
    ]
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("c", "llm", body=json.dumps(ask(history))).end(
            body=json.dumps(answer("Shipped."))
        )
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)

    assert [item.get("role") or item["kind"] for item in shown] == [
        "system",
        "user",
        "assistant",
        "tool",
        "call",
    ]
    assert shown[2]["calls"][0]["name"] == "lookup_order"
    assert shown[3]["result"]["text"] == "shipped"


def test_bodies_of_no_known_form_are_shown_as_they_are(home: Home) -> None:
    """A program that records a prompt as text; long ones are cut, and say so."""
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("c", "llm", body="why is the sky blue? " * 1000).end(body="because")
        outer = run.child("client", "llm")
        outer.child("wire", "llm", body="once").end(body="sent once")
        outer.end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)

    assert [item["kind"] for item in shown] == ["message", "call", "message", "call"]
    assert (shown[0]["role"], shown[0]["text"]["cut"]) == ("input", True)
    assert shown[0]["text"]["size_bytes"] == 21_000
    assert shown[0]["text"]["body"] == {"span": shown[0]["span"], "which": "input"}
    assert shown[1]["text"]["text"] == "because"
    assert shown[3]["text"]["text"] == "sent once"


def test_calls_without_ids_get_each_its_own_result(home: Home) -> None:
    """Gemini's results name their tool only: of two calls of one tool the first has the first
    one.
    """
    paris, rome = (
        {"functionCall": {"name": "weather", "args": {"in": city}}} for city in ("Paris", "Rome")
    )
    sunny, rainy = (
        {"functionResponse": {"name": "weather", "response": {"output": shown}}}
        for shown in ("sunny", "rainy")
    )
    question = {"role": "user", "parts": [{"text": "How is it there?"}]}
    called = {"role": "model", "parts": [paris, rome]}
    results = {"role": "user", "parts": [sunny, rainy]}
    about = {"provider": "gemini"}
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        first = run.child("c", "llm", body=json.dumps({"contents": [question]}), attributes=about)
        first.end(body=json.dumps({"candidates": [{"content": called}]}))
        body = json.dumps({"contents": [question, called, results]})
        run.child("c", "llm", body=body, attributes=about).end(body="{}")
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)
    tools = [item for item in shown if item["kind"] == "tool"]

    assert [(item["arguments"]["text"], item["result"]["text"]) for item in tools] == [
        ('{"in":"Paris"}', '{"output":"sunny"}'),
        ('{"in":"Rome"}', '{"output":"rainy"}'),
    ]


def test_calls_without_ids_are_each_told_at_a_tool_span_of_their_own(home: Home) -> None:
    calls = [
        {"functionCall": {"name": "weather", "args": {"in": city}}} for city in ("Paris", "Rome")
    ]
    question = {"contents": [{"role": "user", "parts": [{"text": "How is it there?"}]}]}
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        call = run.child("c", "llm", body=json.dumps(question), attributes={"provider": "gemini"})
        call.end(body=json.dumps({"candidates": [{"content": {"role": "model", "parts": calls}}]}))
        tools = [run.child("weather", "tool") for _ in calls]
        for tool in tools:
            tool.end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)
    (made,) = [item["calls"] for item in shown if item["kind"] == "call"]

    assert len({call["span"] for call in made}) == 2


def test_what_is_told_as_a_text_is_one_whatever_the_program_recorded(home: Home) -> None:
    """Attributes are of any kind: a page that is promised a name of a model must not meet a
    number.
    """
    about = {"model": 5, "finish_reason": 7}
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("c", "llm", body="why?", attributes=about).end(body="so")
    catch_up(home)
    with vestige.open(home.root) as debugger:
        shown = items(debugger, debugger.resolve(None).run.short_id)

    assert (shown[-1]["model"], shown[-1]["finish_reason"]) == ("5", "7")


def test_a_log_line_with_an_exception_says_which(home: Home) -> None:
    """The last words of a program that died are one: without it, nobody knows what it died of."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.log.error("no total", error=ZeroDivisionError("division by zero"))
    with vestige.open(home.root) as debugger:
        text = debugger.transcript().text()

    assert "error: no total  ZeroDivisionError: division by zero" in text


def test_the_parts_of_a_prompt_are_one_line_of_its_step(home: Home) -> None:
    with Recorder(home, clock=FakeClock()) as recorder, recorder.run("agent") as run:
        parts = [("persona", "p" * 1180), ("tool:read_file", "t" * 300), ("user", "u" * 412)]
        for with_parts in (True, False):
            call = run.child("chat", "llm", body='{"messages": [{"role": "user", "content": "x"}]}')
            if with_parts:
                call.segments(parts)
            call.end(body='{"choices": [{"message": {"role": "assistant", "content": "y"}}]}')
    catch_up(home)

    with vestige.open(home.root) as debugger:
        text = debugger.transcript(run.id).text()

    assert text.count("prompt: ") == 1
    assert "prompt: persona(1180) · tool:read_file(300) · user(412)" in text


TWO_PROCESSES = """
    import logging, subprocess, sys

    CHILD = (
        "import logging, sys\\n"
        "logging.basicConfig(level='INFO')\\n"
        "for name in ('2', '4'):\\n"
        "    logging.getLogger('child').info(name)\\n"
        "    print(name, flush=True)\\n"
        "    sys.stdin.readline()\\n"
    )
    logging.basicConfig(level="INFO")
    log = logging.getLogger("parent")
    log.info("1")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for name in ("3", "5"):
        child.stdout.readline()
        log.info(name)
        print(file=child.stdin, flush=True)
    child.wait()
"""


def test_the_lines_of_several_processes_are_in_order_of_time(home: Home) -> None:
    """Each waits for the other, so their order is certain."""
    run_in(
        home,
        TWO_PROCESSES,
        command=[sys.executable, "-m", "vestige", "run", "--no-prints", "--", sys.executable],
    )
    with vestige.open(home.root) as debugger:
        (run,) = debugger.list().runs
        text = debugger.transcript(run.short_id).text()

    assert [line for line in text.splitlines() if line.startswith("info: ")] == [
        f"info: {number}" for number in range(1, 6)
    ]


@pytest.mark.parametrize("question", ["What is left to pay?", "What is left to pay? " * 12])
def test_a_log_shows_its_task_once(tmp_path: Path, question: str) -> None:
    """The head has it; the user's message and a plan that quotes it refer to the head."""
    question = question.strip()
    plan = f"Initial plan:\nWe answer this request:\n{question}\nFirst, look up the invoice."
    history = [
        {"content": question, "role": "human"},
        {"content": plan, "role": "Orchestrator (thought)"},
        {"content": "It is 12 euros.", "role": "Orchestrator (termination condition)"},
    ]
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"question": question, "history": history}))

    with vestige.open(path) as debugger:
        text = debugger.transcript().text()
        step = debugger.transcript(step="1", full=True).text()

    is_quoted = len(question) < REPEAT_LENGTH  # shorter passages have no reference
    assert text.count(question) == 1 + is_quoted
    assert "as in the task]" in text
    assert "First, look up the invoice." in step
