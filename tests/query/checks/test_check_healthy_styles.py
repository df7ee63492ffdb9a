"""Healthy runs in the styles of many frameworks: no errors, at most 2 warnings in all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.planted_bugs import all_findings, recording
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks import run_checks
from vestige.query.evidence import open_run
from vestige.record.finding import Finding
from vestige.store.protocol import RunFilter
from vestige.transfer.temp_store import load_runs

Lookup = tuple[str, dict[str, Any], str]
"""Tool, arguments, result."""
Style = Callable[[Span], None]

TASK = "Compare the weather in Oslo and Rome."
OSLO: Lookup = ("weather", {"city": "Oslo"}, "snow, -4 degrees")
ROME: Lookup = ("weather", {"city": "Rome"}, "sun, 21 degrees")
FINAL = "It snows in Oslo at -4 degrees, and Rome has sun at 21 degrees."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WARNINGS_MAX = 2


def record_call(run: Span, provider: str, sent: Any, got: Any, model: str = "m-1") -> Span:
    span = run.child("chat", "llm", {"provider": provider, "model": model}, json.dumps(sent))
    span.end(body=got if isinstance(got, str) else json.dumps(got))
    return span


def record_tool(run: Span, lookup: Lookup, call_id: str | None) -> None:
    attributes = {"tool_call_id": call_id} if call_id else None
    span = run.child(lookup[0], "tool", attributes, json.dumps(lookup[1]))
    span.end(body=lookup[2])


# --- providers: a turn is a list of parallel lookups ----------------------------------------------


def openai(run: Span, turns: list[list[Lookup]], *, spans: bool, final: str = FINAL) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    messages.append({"role": "user", "content": TASK})
    for number, lookups in enumerate([*turns, []]):
        calls = [
            {
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments, _) in enumerate(lookups)
        ]
        reply: dict[str, Any] = {"role": "assistant", "content": None if calls else final}
        if calls:
            reply["tool_calls"] = calls
        choice = {"index": 0, "message": reply, "finish_reason": "tool_calls" if calls else "stop"}
        sent = {"model": "gpt-4o", "messages": messages, "tools": [tool]}
        record_call(run, "openai", sent, {"object": "chat.completion", "choices": [choice]})
        messages = [*messages, reply]
        for each, lookup in zip(calls, lookups, strict=True):
            if spans:
                record_tool(run, lookup, str(each["id"]))
            result = {"role": "tool", "tool_call_id": each["id"], "content": lookup[2]}
            messages = [*messages, result]


def anthropic(run: Span, turns: list[list[Lookup]], *, spans: bool, final: str = FINAL) -> None:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    for number, lookups in enumerate([*turns, []]):
        content: list[Any] = [
            {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": arguments}
            for index, (name, arguments, _) in enumerate(lookups)
        ] or [{"type": "text", "text": final}]
        sent = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 500,
            "system": "Be brief.",
            "tools": [{"name": "weather", "input_schema": SCHEMA}],
            "messages": messages,
        }
        reason = "tool_use" if lookups else "end_turn"
        got = {"type": "message", "role": "assistant", "content": content, "stop_reason": reason}
        record_call(run, "anthropic", sent, got)
        results = []
        for index, lookup in enumerate(lookups):
            call_id = f"toolu_{number}_{index}"
            if spans:
                record_tool(run, lookup, call_id)
            results.append({"type": "tool_result", "tool_use_id": call_id, "content": lookup[2]})
        messages = [*messages, {"role": "assistant", "content": content}]
        messages = [*messages, {"role": "user", "content": results}] if results else messages


def responses(run: Span, turns: list[list[Lookup]], *, spans: bool, final: str = FINAL) -> None:
    items: list[Any] = [{"role": "user", "content": TASK}]
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA}
    for number, lookups in enumerate([*turns, []]):
        output: list[Any] = [
            {
                "type": "function_call",
                "call_id": f"call_{number}_{index}",
                "name": name,
                "arguments": json.dumps(arguments),
            }
            for index, (name, arguments, _) in enumerate(lookups)
        ]
        text = {"type": "output_text", "text": final}
        output = output or [{"type": "message", "role": "assistant", "content": [text]}]
        sent = {"model": "gpt-5", "input": items, "tools": [tool]}
        got = {"object": "response", "status": "completed", "output": output}
        record_call(run, "openai-responses", sent, got)
        items = [*items, *output]
        for index, lookup in enumerate(lookups):
            call_id = f"call_{number}_{index}"
            if spans:
                record_tool(run, lookup, call_id)
            result = {"type": "function_call_output", "call_id": call_id, "output": lookup[2]}
            items = [*items, result]


# --- agents that write text or code ---------------------------------------------------------------


def chat(run: Span, *turns: tuple[str, str], system: str = "Be brief.") -> None:
    """Record a conversation of text: pairs of what the user sends and the model answers."""
    messages: list[Any] = [{"role": "system", "content": system}]
    for question, text in turns:
        messages = [*messages, {"role": "user", "content": question}]
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        sent = {"model": "gpt-4o", "messages": messages}
        record_call(run, "openai", sent, {"object": "chat.completion", "choices": [choice]})
        messages = [*messages, {"role": "assistant", "content": text}]


def react(run: Span) -> None:
    chat(
        run,
        (TASK, "Thought: I look at Oslo.\nAction: weather\nAction Input: Oslo"),
        (f"Observation: {OSLO[2]}", "Thought: Now Rome.\nAction: weather\nAction Input: Rome"),
        (f"Observation: {ROME[2]}", f"Thought: I know it now.\nFinal Answer: {FINAL}"),
    )


def code_agent(run: Span) -> None:
    for code, printed in (("weather('Oslo')", OSLO[2]), ("weather('Rome')", ROME[2])):
        step = run.child("Step", "step")
        chat(step, (TASK, f"Thought: I look.\n```python\nprint({code})\n```<end_code>"))
        step.end(body=f"Observation: {printed}")
    chat(run, (TASK, f'```python\nfinal_answer("{FINAL}")\n```'))


def code_agent_that_recovers(run: Span) -> None:
    chat(
        run,
        (TASK, "```python\nprint(wether('Oslo'))\n```"),
        ("NameError: name 'wether' is not defined", "```python\nprint(weather('Oslo'))\n```"),
        (f"Observation: {OSLO[2]}", "The first try had an error. Oslo has snow, -4 degrees."),
    )


def rag(run: Span) -> None:
    found = "Doc 1: Refunds are paid within 14 days. Doc 2: Shipping is free."
    span = run.child("retrieve", "retriever", body="refund time")
    span.end(body=found)
    chat(run, (f"Context:\n{found}\n\nHow long do refunds take?", "Refunds take 14 days."))


def compaction(run: Span) -> None:
    chat(run, *((f"Question {n} " + "x" * 3_000, f"Answer {n}") for n in range(6)))
    run.child("compact history", "step").end()
    chat(run, ("Summary: six questions were answered. Question 7", "Answer 7"))


def streaming(run: Span) -> None:
    words = ["It ", "snows ", "in ", "Oslo."]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}} for word in words]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [{"choices": [choice]} for choice in choices]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    messages = [{"role": "user", "content": "Oslo?"}]
    sent = {"model": "gpt-4o", "stream": True, "messages": messages}
    record_call(run, "openai", sent, body)


def service(run: Span) -> None:
    for customer in range(5):
        chat(run, (f"I am customer {customer}. Hello!", "Hello!"), ("Bye.", "Goodbye!"))


def handoff(run: Span) -> None:
    triage = run.child("Triage", "agent")
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "transfer_to_billing", "arguments": "{}"},
    }
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    tool = {"type": "function", "function": {"name": "transfer_to_billing", "parameters": {}}}
    messages = [{"role": "user", "content": "My bill is wrong."}]
    choice = {"message": reply, "finish_reason": "tool_calls"}
    sent = {"model": "gpt-4o", "messages": messages, "tools": [tool]}
    record_call(triage, "openai", sent, {"object": "chat.completion", "choices": [choice]})
    triage.end()
    billing = run.child("Billing", "agent")
    chat(billing, ("My bill is wrong.", "I corrected your bill."), system="You do the billing.")
    billing.end()


def sub_agents(run: Span) -> None:
    for name in ("Researcher", "Writer"):
        agent = run.child(name, "agent")
        openai(agent, [[OSLO], [ROME]], spans=True)
        agent.end(body=FINAL)


def polling(run: Span) -> None:
    states = [("weather", {"city": "Oslo"}, f"snow, {cm} cm") for cm in (10, 12, 15, 20)]
    openai(run, [[state] for state in states], spans=False, final="20 cm, so the lift opens.")


def recovered_tool(run: Span) -> None:
    error: Lookup = ("weather", {"city": "Olso"}, "Error: unknown city Olso")
    openai(run, [[error], [OSLO], [ROME]], spans=True)


def empty_search(run: Span) -> None:
    nothing: Lookup = ("weather", {"city": "Atlantis"}, "[]")
    openai(run, [[nothing]], spans=True, final="I found no data for Atlantis.")


def styles() -> Iterator[tuple[str, Style]]:
    for provider in (openai, anthropic, responses):
        for spans in (True, False):
            for shape, turns in (
                ("one", [[OSLO]]),
                ("turns", [[OSLO], [ROME]]),
                ("parallel", [[OSLO, ROME]]),
            ):

                def record(
                    run: Span, provider: Any = provider, spans: bool = spans, turns: Any = turns
                ) -> None:
                    provider(run, turns, spans=spans)

                yield f"{provider.__name__} {shape} {'spans' if spans else 'wire'}", record
    for style in (
        react,
        code_agent,
        code_agent_that_recovers,
        rag,
        compaction,
        streaming,
        service,
        handoff,
        sub_agents,
        polling,
        recovered_tool,
        empty_search,
    ):
        yield style.__name__, style


GROUP_CHAT = [
    {"role": "assistant", "name": "Planner", "content": "Find out what the tickets cost."},
    {"role": "user", "name": "Expert", "content": "The tickets were sold for 4711 crowns."},
    {"role": "user", "name": "Checker", "content": "I agree with the expert, this is right."},
    {"role": "user", "name": "Planner", "content": "FINAL ANSWER: 4711 crowns"},
]
SINGLE_AGENT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the capital of Norway?"},
    {"role": "assistant", "content": "Oslo."},
]


def check_messages(folder: Path, messages: list[dict[str, Any]]) -> list[Finding]:
    path = folder / "log.json"
    path.write_text(json.dumps(messages))
    temporary = load_runs(path)
    try:
        (info,) = temporary.store.list_runs(RunFilter())
        found, _, failed = run_checks(open_run(temporary.store, info.id))
    finally:
        temporary.close()
    assert failed == {}
    return found


@pytest.mark.slow
def test_healthy_runs_have_no_errors_and_few_warnings(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found: dict[str, list[Finding]] = {}
    for name, style in styles():
        home = Home(tmp_path_factory.mktemp("style") / "home")
        with recording(home) as run:
            style(run)
        found[name] = all_findings(home)
    for name, messages in (("group chat", GROUP_CHAT), ("messages", SINGLE_AGENT)):
        found[name] = check_messages(tmp_path_factory.mktemp("log"), messages)

    assert len(found) == 32
    shown = [
        f"{name}: [{each.severity}] {each.kind}: {each.message}"
        for name, findings in found.items()
        for each in findings
        if each.severity != "hint"
    ]
    assert not [line for line in shown if "[error]" in line]
    assert len(shown) <= WARNINGS_MAX, "\n".join(shown)
