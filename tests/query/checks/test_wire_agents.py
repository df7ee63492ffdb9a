"""Bugs planted into agents over HTTP, and healthy styles, with a provider on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from support.planted_bugs import all_findings
from support.provider_answers import chat_chunks
from support.provider_server import Reply
from support.wire_agent import WireAgent, ask_tool, refuse, text_reply
from vestige.home import Home

ORDER = "Where is order 7?"
SHIPPED = "Order 7 was shipped on Monday."
STATE = {"id": 7, "state": "shipped", "day": "Monday"}

Program = Callable[[Home, bool], None]


def find(id: int) -> dict[str, object]:
    return {**STATE, "id": id}


def find_depot(id: int) -> str:
    return f"order {id} is in depot {id}0"


def unknown_tool(home: Home, bug: bool) -> None:
    name = "find_order" if bug else "find"
    with WireAgent(home, [ask_tool(name, {"id": 7}), text_reply(SHIPPED)]) as agent:
        agent.converse(ORDER, find=find)


def bad_arguments(home: Home, bug: bool) -> None:
    arguments = {"order": "seven"} if bug else {"id": 7}
    with WireAgent(home, [ask_tool("find", arguments), text_reply(SHIPPED)]) as agent:
        agent.converse(ORDER, find=find)


def failing_tool(home: Home, bug: bool) -> None:
    def look_up(id: int) -> dict[str, object]:
        if bug:
            raise ConnectionError("database is down")
        return find(id)

    final = "I cannot reach the database." if bug else SHIPPED
    with WireAgent(home, [ask_tool("find", {"id": 7}), text_reply(final)]) as agent:
        agent.converse(ORDER, find=look_up)


def unheeded_error(home: Home, bug: bool) -> None:
    """The tool reports an error as text, and the model claims success."""
    text = '{"status": "error", "message": "order service is unavailable"}'
    with WireAgent(home, [ask_tool("find", {"id": 7}), text_reply(SHIPPED)]) as agent:
        agent.converse(ORDER, find=lambda **order: text if bug else find(**order))


def loop(home: Home, bug: bool) -> None:
    replies = [ask_tool("find", {"id": 7}) for _ in range(6 if bug else 1)]
    with WireAgent(home, [*replies, text_reply(SHIPPED)]) as agent:
        agent.converse(ORDER, find=find)


def server_errors(home: Home, bug: bool) -> None:
    """The program repeats a call that the provider cannot answer, at once and for ever."""
    errors = [refuse(500, "The server had an error", "server_error")] * (8 if bug else 0)
    with WireAgent(home, [*errors, text_reply(SHIPPED)]) as agent:
        agent.messages.append({"role": "user", "content": ORDER})
        for _ in range(8 if bug else 1):
            try:
                agent.send()
            except httpx.HTTPStatusError:
                continue


def _refused(status: int, message: str, home: Home, bug: bool) -> None:
    with WireAgent(home, [refuse(status, message) if bug else text_reply(SHIPPED)]) as agent:
        agent.converse(ORDER)


def cut_answer(home: Home, bug: bool) -> None:
    text = '{"orders": [{"id": 7, "state": "shi' if bug else '{"orders": []}'
    with WireAgent(home, [text_reply(text, "length" if bug else "stop")]) as agent:
        agent.converse("List my orders as JSON.")


def filtered(home: Home, bug: bool) -> None:
    with WireAgent(
        home, [text_reply("", "content_filter") if bug else text_reply(SHIPPED)]
    ) as agent:
        agent.converse(ORDER)


def empty(home: Home, bug: bool) -> None:
    with WireAgent(home, [text_reply("" if bug else SHIPPED)]) as agent:
        agent.converse(ORDER)


def missing_result(home: Home, bug: bool) -> None:
    """The program drops the tool's result before it sends the history."""
    refused = refuse(
        400, "An assistant message with 'tool_calls' must be followed by tool messages"
    )
    with WireAgent(
        home, [ask_tool("find", {"id": 7}), refused if bug else text_reply(SHIPPED)]
    ) as agent:
        agent.messages.append({"role": "user", "content": ORDER})
        agent.add_results(agent.send(), {"find": find})
        if bug:
            agent.messages.pop()
        agent.send()


def lost_head(home: Home, bug: bool) -> None:
    """After many turns the program keeps the last few messages only."""
    with WireAgent(home, [text_reply(f"Answer {number}.") for number in range(9)]) as agent:
        for number in range(8):
            agent.converse(f"Question {number} about order {number}, please?")
        agent.messages.append({"role": "user", "content": "And what was my first question?"})
        agent.send([agent.messages[0], *agent.messages[-6:]] if bug else None)


def swapped_results(home: Home, bug: bool) -> None:
    replies = [ask_tool("find", {"id": 7}, {"id": 8}), text_reply("7 and 8 were shipped.")]
    with WireAgent(home, replies) as agent:
        agent.messages.append({"role": "user", "content": "Where are orders 7 and 8?"})
        agent.add_results(agent.send(), {"find": find_depot})
        if bug:
            first, second = agent.messages[-2:]
            first["content"], second["content"] = second["content"], first["content"]
        agent.send()


def clock_in_the_prompt(home: Home, bug: bool) -> None:
    """A time at the start of the system prompt: no prefix is read from the cache."""
    rules = "You look up orders. " + "Be brief, and cite the order. " * 400
    replies = [
        text_reply(f"Answer {number}.", cached=0 if bug or not number else 2_000)
        for number in range(4)
    ]
    with WireAgent(home, replies, rules) as agent:
        for number in range(4):
            if bug:
                agent.messages[0]["content"] = f"It is 12:00:0{number}. {rules}"
            agent.converse(f"Question {number}?")


def slow_provider(home: Home, bug: bool) -> None:
    import threading

    gate = threading.Event()
    reply = Reply(body=text_reply(SHIPPED).body, gate=gate)
    with WireAgent(home, [reply if bug else text_reply(SHIPPED)]) as agent:
        agent.timeout_s = 0.3 if bug else 60
        try:
            agent.converse(ORDER)
        finally:
            gate.set()


def refused_connection(home: Home, bug: bool) -> None:
    with WireAgent(home, [text_reply(SHIPPED)]) as agent:
        if bug:
            agent._server.url = "http://127.0.0.1:1"
        agent.converse(ORDER)


def cut_stream(home: Home, bug: bool) -> None:
    """The connection is reset in the middle of a streamed answer."""
    chunks = chat_chunks(["Order ", "7 ", "was ", "shipped."])
    reply = Reply(chunks=chunks, type="text/event-stream", reset_after=3 if bug else None)
    with WireAgent(home, [reply]) as agent:
        body = {"model": "gpt-4o", "stream": True, "messages": agent.messages}
        url = f"{agent._server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body) as response:
            for _ in response.iter_lines():
                pass


def huge_result(home: Home, bug: bool) -> None:
    rows = [{"id": number, "state": "shipped", "note": "x" * 60} for number in range(6_000)]
    with WireAgent(
        home, [ask_tool("search", {"q": "orders"}), text_reply("There are many.")]
    ) as agent:
        agent.converse("How many orders are there?", search=lambda q: rows if bug else rows[:3])


def never_ran(home: Home, bug: bool) -> None:
    """The program ends without running what the model requested."""
    with WireAgent(home, [ask_tool("find", {"id": 7}), text_reply(SHIPPED)]) as agent:
        agent.messages.append({"role": "user", "content": ORDER})
        answer = agent.send()
        if not bug:
            agent.add_results(answer, {"find": find})
            agent.send()


def parser_error(home: Home, bug: bool) -> None:
    """The program expects JSON, and the model answers with a sentence."""
    with WireAgent(home, [text_reply(SHIPPED if bug else '{"state": "shipped"}')]) as agent:
        json.loads(agent.converse("Where is order 7? Answer in JSON.") or "")


def call_in_text(home: Home, bug: bool) -> None:
    text = '{"name": "find", "arguments": {"id": 7}}'
    replies = [text_reply(text)] if bug else [ask_tool("find", {"id": 7}), text_reply(SHIPPED)]
    with WireAgent(home, replies) as agent:
        agent.converse(ORDER, find=find)


BUGS: dict[str, tuple[Program, set[str]]] = {
    "unknown tool": (unknown_tool, {"unknown-tool"}),
    "bad arguments": (bad_arguments, {"bad-arguments"}),
    "failing tool": (failing_tool, {"failed-tool"}),
    "unheeded error": (unheeded_error, {"soft-error", "ignored-error"}),
    "loop": (loop, {"loop"}),
    "server errors": (server_errors, {"retry-storm", "failed-call"}),
    "rate limit": (partial(_refused, 429, "Rate limit reached"), {"failed-call"}),
    "wrong key": (partial(_refused, 401, "Incorrect API key provided"), {"failed-call"}),
    "unknown model": (partial(_refused, 404, "The model does not exist"), {"failed-call"}),
    "context too long": (
        partial(_refused, 400, "This model's maximum context length is 8192 tokens"),
        {"context-pressure"},
    ),
    "cut answer": (cut_answer, {"output-cut"}),
    "content filter": (filtered, {"content-filter"}),
    "empty answer": (empty, {"empty-response"}),
    "missing result": (missing_result, {"invalid-history"}),
    "lost head": (lost_head, {"history-head-loss", "history-loss"}),
    "swapped results": (swapped_results, {"swapped-results"}),
    "clock in the prompt": (clock_in_the_prompt, {"cache-miss", "cache-churn"}),
    "slow provider": (slow_provider, {"failed-call"}),
    "refused connection": (refused_connection, {"failed-call"}),
    "cut stream": (cut_stream, {"failed-call", "body-incomplete", "output-cut"}),
    "huge result": (huge_result, {"oversized-result"}),
    "call that never ran": (never_ran, {"orphan-call"}),
    "parser error": (parser_error, {"uncaught-exception"}),
    "call in text": (call_in_text, {"call-as-text"}),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_an_agent_over_http_is_found(home: Home, name: str) -> None:
    program, checks = BUGS[name]
    program(home, True)

    found = {finding.check for finding in all_findings(home) if finding.severity != "hint"}

    assert checks & found, found


@pytest.mark.parametrize("name", BUGS)
def test_the_same_agent_without_its_bug_is_healthy(home: Home, name: str) -> None:
    BUGS[name][0](home, False)

    found = [each for each in all_findings(home) if each.severity != "hint"]

    assert [(each.kind, each.message) for each in found] == []


# --- healthy styles ---------------------------------------------------------------------


def retry_once(home: Home) -> None:
    with WireAgent(
        home, [refuse(429, "Rate limit reached", "requests"), text_reply(SHIPPED)]
    ) as agent:
        agent.messages.append({"role": "user", "content": ORDER})
        try:
            agent.send()
        except httpx.HTTPStatusError:
            agent.send()


def parallel_tools(home: Home) -> None:
    replies = [ask_tool("find", {"id": 7}, {"id": 8}, {"id": 9}), text_reply("All were shipped.")]
    with WireAgent(home, replies) as agent:
        agent.messages.append({"role": "user", "content": "Where are 7, 8 and 9?"})
        answer = agent.send()
        agent.messages.append(answer)
        with ThreadPoolExecutor(3) as pool:
            results = list(
                pool.map(lambda call: agent.use(call, {"find": find}), answer["tool_calls"])
            )
        for call, result in zip(answer["tool_calls"], results, strict=True):
            agent.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        agent.send()


def polling(home: Home) -> None:
    states = iter(["packed", "handed over", "in transit", "delivered"])
    replies = [ask_tool("find", {"id": 7}) for _ in range(4)]
    with WireAgent(home, [*replies, text_reply("Order 7 is delivered.")]) as agent:
        agent.converse("Tell me when order 7 is delivered.", find=lambda **order: next(states))


def corrected_arguments(home: Home) -> None:
    replies = [
        ask_tool("search", {"q": "ordr 7"}),
        ask_tool("search", {"q": "order 7"}),
        text_reply(SHIPPED),
    ]
    with WireAgent(home, replies) as agent:
        agent.converse(ORDER, search=lambda q: "[]" if q == "ordr 7" else json.dumps([STATE]))


def nothing_found(home: Home) -> None:
    with WireAgent(
        home, [ask_tool("search", {"q": "order 999"}), text_reply("I found no order 999.")]
    ) as agent:
        agent.converse("Where is order 999?", search=lambda q: "[]")


def text_about_errors(home: Home) -> None:
    found = "Doc 4: The error 'payment failed' means that the card was declined. Try another card."
    replies = [
        ask_tool("search", {"q": "payment failed"}),
        text_reply("Your card was declined; try another."),
    ]
    with WireAgent(home, replies) as agent:
        agent.converse("What does the error 'payment failed' mean?", search=lambda q: found)


def batch(home: Home) -> None:
    with WireAgent(home, [text_reply(f"Ticket {number}: refund.") for number in range(6)]) as agent:
        for number in range(6):
            ticket = {"role": "user", "content": f"Classify ticket {number}: I want my money back."}
            agent.send([agent.messages[0], ticket])


def streamed(home: Home) -> None:
    cut_stream(home, False)


def declined_by_a_person(home: Home) -> None:
    replies = [ask_tool("find", {"id": 7}), text_reply("All right, I do not look it up.")]
    with WireAgent(home, replies) as agent:
        agent.converse(ORDER, find=lambda **order: "The user declined this call.")


def forced_tool(home: Home) -> None:
    with WireAgent(home, [ask_tool("find", {"id": 7})]) as agent:
        agent.messages.append({"role": "user", "content": "Extract: order 7 is late."})
        choice = {"type": "function", "function": {"name": "find"}}
        agent.send(tool_choice=choice)


def summary_of_the_history(home: Home) -> None:
    with WireAgent(home, [text_reply(f"Answer {number}.") for number in range(7)]) as agent:
        for number in range(6):
            agent.converse(f"Question {number}: " + "words " * 200)
        summary = {"role": "user", "content": "Summary of the conversation so far: six questions."}
        agent.send([agent.messages[0], summary, {"role": "user", "content": "Question 7?"}])


def two_agents(home: Home) -> None:
    with WireAgent(
        home,
        [text_reply("A plan: look up order 7."), ask_tool("find", {"id": 7}), text_reply(SHIPPED)],
    ) as agent:
        planner = [{"role": "system", "content": "You plan."}, {"role": "user", "content": ORDER}]
        plan = agent.send(planner)
        agent.converse(f"{ORDER}\n{plan['content']}", find=find)


STYLES = (
    *(retry_once, parallel_tools, polling, corrected_arguments, nothing_found, text_about_errors),
    *(batch, streamed, declined_by_a_person, forced_tool, summary_of_the_history, two_agents),
)


def test_healthy_styles_have_no_errors_and_no_warnings(home: Home) -> None:
    found = []
    for style in STYLES:
        place = Home(home.root / style.__name__)
        style(place)
        findings = [each for each in all_findings(place) if each.severity != "hint"]
        found += [(style.__name__, each.kind, each.message) for each in findings]

    assert found == []
