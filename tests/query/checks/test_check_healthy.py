"""Healthy agents of every provider: no check has anything to say about them.

A false finding costs more than a missed one: who met two of them reads no third.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.planted_bugs import (
    all_findings,
    answer,
    call,
    evidence_of,
    findings,
    recording,
    request,
    requested_calls,
    result,
    think,
    use,
)
from vestige.emit.span import Span
from vestige.errors import NotFoundError
from vestige.home import Home
from vestige.query.checks.progress import loops
from vestige.query.checks.tools import orphan_calls, tool_calls
from vestige.query.evidence import Evidence
from vestige.store.sqlite.sqlite_store import SqliteStore

TURNS = 3
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def run_tool(run: Span, turn: int, call_id: str | None) -> None:
    use(run, json.dumps({"q": f"x{turn}"}), call_id, name="search", output=f"found {turn}")


# --- calls without ids ----------------------------------------------------------------------------


def gemini_turn(history: list[Any], *parts: Any) -> tuple[str, str]:
    declared = {"functionDeclarations": [{"name": "search", "parameters": PARAMETERS}]}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
    return (
        json.dumps({"contents": history, "tools": [declared]}),
        json.dumps({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9}}),
    )


def gemini(run: Span, execute: Callable[[int], None], results: int = 1) -> None:
    history: list[Any] = [{"role": "user", "parts": [{"text": "compare them"}]}]
    for turn in range(TURNS):
        part = {"functionCall": {"name": "search", "args": {"q": f"x{turn}"}}}
        think(run, *gemini_turn(history, part), provider="gemini", model="gemini-2.5-pro")
        execute(turn)
        response = {"functionResponse": {"name": "search", "response": {"found": turn}}}
        history += [
            {"role": "model", "parts": [part]},
            {"role": "user", "parts": [response] * results},
        ]
    think(run, *gemini_turn(history, {"text": "done"}), provider="gemini", model="gemini-2.5-pro")


def ollama_turn(history: list[Any], message: Any) -> tuple[str, str]:
    offered = {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}
    return (
        json.dumps({"model": "llama3.2", "messages": history, "tools": [offered]}),
        json.dumps({"model": "llama3.2", "message": message, "done": True, "done_reason": "stop"}),
    )


def ollama(run: Span, execute: Callable[[int], None]) -> None:
    history: list[Any] = [{"role": "user", "content": "compare them"}]
    for turn in range(TURNS):
        call = {"function": {"name": "search", "arguments": {"q": f"x{turn}"}}}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        think(run, *ollama_turn(history, message), provider="ollama", model="llama3.2")
        execute(turn)
        history += [message, {"role": "tool", "tool_name": "search", "content": f"found {turn}"}]
    done = {"role": "assistant", "content": "done"}
    think(run, *ollama_turn(history, done), provider="ollama", model="llama3.2")


@pytest.mark.parametrize("agent", [gemini, ollama])
@pytest.mark.parametrize("ids", ["no tool spans", "no ids", "ids of the program's own"])
def test_a_tool_that_is_called_in_every_turn_by_a_provider_without_ids(
    home: Home, agent: Callable[..., None], ids: str
) -> None:
    """Its calls and results are matched by name, or by order: each ran once and was given once."""
    with recording(home) as run:

        def execute(turn: int) -> None:
            if ids != "no tool spans":
                run_tool(run, turn, None if ids == "no ids" else f"own-{turn}")

        agent(run, execute)

    assert all_findings(home) == []


def test_a_result_that_is_given_twice_is_found_without_ids_too(home: Home) -> None:
    with recording(home) as run:
        gemini(run, lambda turn: run_tool(run, turn, None), results=2)

    (found,) = findings(home, tool_calls.duplicate_result)

    assert "2 times; the tool ran 3 times" in found.message


def test_a_last_call_without_an_id_that_never_ran_is_an_orphan(home: Home) -> None:
    with recording(home) as run:
        gemini(run, lambda _: None)
        part = {"functionCall": {"name": "search", "args": {"q": "again"}}}
        last = think(run, *gemini_turn([{"role": "user", "parts": [{"text": "go"}]}], part))

    (found,) = findings(home, orphan_calls.orphan_call)

    assert found.cause == last.id


# --- tools that take text, and tools of the provider's own ----------------------------------------


def output_text(*output: Any) -> str:
    return json.dumps({"object": "response", "status": "completed", "output": list(output)})


def test_a_custom_tool_takes_free_text(home: Home) -> None:
    """It has no schema, so its input need not be JSON; chat completions wrap its name."""
    ask = {"role": "user", "content": "compute"}
    flat = {"model": "gpt-5", "input": [ask], "tools": [{"type": "custom", "name": "python"}]}
    wrapped = {
        "model": "gpt-5",
        "messages": [ask],
        "tools": [{"type": "custom", "custom": {"name": "python"}}],
    }
    chosen = {"id": "c2", "type": "custom", "custom": {"name": "python", "input": "print(2)"}}
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "python", "input": "print(1)"}
    with recording(home) as run:
        think(run, json.dumps(flat), output_text(item))
        use(run, "print(1)", "c1", name="python", output="1")
        think(run, json.dumps(wrapped), answer(chosen))
        use(run, "print(2)", "c2", name="python", output="2")

    assert all_findings(home) == []


@pytest.mark.parametrize(
    "got",
    [
        output_text({"type": "computer_call", "call_id": "c1", "action": {"type": "click"}}),
        output_text({"type": "mcp_approval_request", "name": "delete", "arguments": "{}"}),
        json.dumps(
            {
                "type": "message",
                "content": [{"type": "server_tool_use", "id": "s1", "name": "web_search"}],
                "stop_reason": "pause_turn",
            }
        ),
        json.dumps(
            {
                "candidates": [
                    {
                        "content": {"parts": [{"inlineData": {"data": "AA=="}}]},
                        "finishReason": "STOP",
                    }
                ]
            }
        ),
    ],
    ids=["computer", "approval", "server tool", "picture"],
)
def test_an_answer_that_is_no_text_is_not_empty(home: Home, got: str) -> None:
    with recording(home) as run:
        think(run, request(tools=()), got)

    assert all_findings(home) == []


# --- bodies that retention took -------------------------------------------------------------------


@contextmanager
def evicted(home: Home, side: str) -> Iterator[Evidence]:
    """The evidence of a run of which the inputs, or outputs, are gone."""
    with evidence_of(home) as complete, SqliteStore.open(home.store, readonly=True) as store:
        refs = [getattr(span, side) for span in complete.run.spans]
        gone = {ref.id for ref in refs if ref is not None}

        def read(body_id: int, begin: int, length: int | None) -> bytes:
            if body_id in gone:
                raise NotFoundError("body: evicted.")
            return store.read_body(body_id, begin, length)

        yield Evidence(complete.run, read)


def test_a_call_is_no_orphan_whose_result_may_have_been_in_a_request_that_is_gone(
    home: Home,
) -> None:
    with recording(home) as run:
        think(run, request(), answer(call({"city": "Oslo"}, "call_1")))
        history = (requested_calls(call({"city": "Oslo"}, "call_1")), result("rain", "call_1"))
        think(run, request(*history), answer(text="rain"))

    with evicted(home, "input") as evidence:
        assert list(orphan_calls.orphan_call(evidence)) == []


def test_calls_whose_arguments_are_gone_are_not_the_same_call(home: Home) -> None:
    with recording(home) as run:
        for n in range(4):
            use(run, json.dumps({"path": f"{n}.txt"}), f"call_{n}", name="write", output="ok")

    with evicted(home, "input") as evidence:
        assert list(loops.loop(evidence)) == []
