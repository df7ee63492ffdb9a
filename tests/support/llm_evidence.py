"""Small agents that call a model, and what their runs are evidence of.

`Agent` records through the real recorder into a home, at a clock that a test can move;
`examine` takes the journals in and gives the evidence of the latest run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks import Function
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.testing import FakeClock

RULES = "You are a careful assistant. " + "Follow rule number seven of the handbook. " * 200
"""Long enough for a provider to cache."""

TOOLS = [
    {
        "name": "search",
        "description": "Search the web.",
        "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
    }
]
MARK = {"type": "ephemeral"}


def anthropic_request(
    messages: list[dict[str, Any]], *, system: str = RULES, mark: bool = True, **more: Any
) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": system}
    if mark:
        block["cache_control"] = MARK
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "tools": TOOLS,
        "system": [block],
        "messages": messages,
        **more,
    }


def anthropic_answer(text: str = "Done.", **usage: int) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "output_tokens": 5, **usage},
    }


def cached(read: int, written: int) -> dict[str, Any]:
    return anthropic_answer(cache_read_input_tokens=read, cache_creation_input_tokens=written)


def openai_answer(
    content: str | None = "Done.", finish: str = "stop", **more: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {
        "object": "chat.completion",
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 5},
    }


class Agent:
    """One run of an agent."""

    def __init__(self, home: Home) -> None:
        self.clock = FakeClock()
        self.recorder = Recorder(home, clock=self.clock, crash_hooks=False)
        self.run = self.recorder.run("answer", "c-1")

    def call(
        self,
        request: Any,
        answer: Any = None,
        *,
        parent: Span | None = None,
        status: str | None = None,
        **attributes: Any,
    ) -> Span:
        """A model call, recorded as a client at the wire would."""
        body = request if isinstance(request, str) else json.dumps(request)
        span = (parent or self.run).child(
            "chat", "llm", {"provider": "anthropic", **attributes}, body
        )
        span.end(
            body=answer if answer is None or isinstance(answer, str) else json.dumps(answer),
            status=status,
        )
        return span

    def tool(self, name: str, output: str, call_id: str) -> Span:
        span = self.run.child(name, "tool", {"tool_call_id": call_id})
        span.end(body=output)
        return span

    def wait(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1e9))

    def done(self) -> None:
        self.run.end()
        self.recorder.close()


@contextmanager
def examine(home: Home) -> Iterator[Evidence]:
    """The evidence of the latest run of a home."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        run = store.load_run(store.list_runs(RunFilter())[0].id)
        yield Evidence(run, store.read_body, read_bodies=store.read_bodies)


def findings(home: Home, *checks: Function) -> list[Finding]:
    with examine(home) as evidence:
        return [finding for each in checks for finding in each(evidence)]
