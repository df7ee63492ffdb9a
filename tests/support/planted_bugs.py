"""Plant a bug, record it for real, and ask a check: recorder, journal, collector, store.

with recording(home) as run: ...          the program
findings(home, loops.loop)                what a check says about it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks import run_checks
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import RunInfo, SpanInfo
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

Function = Callable[[Evidence], Iterator[Finding]]


@contextmanager
def recording(
    home: Home, conversation_id: str | None = None, clock: FakeClock | None = None, **more: Any
) -> Iterator[Span]:
    """A run named `agent`, recorded into `home`; what it raises ends it, and is swallowed."""
    with Recorder(home, crash_hooks=False, clock=clock or FakeClock(), **more) as recorder:
        try:
            with recorder.run("agent", conversation_id) as run:
                yield run
        except Exception:
            pass


@contextmanager
def evidence_of(home: Home, name: str = "agent") -> Iterator[Evidence]:
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        (info,) = [each for each in _runs(store) if each.name == name]
        run = store.load_run(info.id)
        yield Evidence(run, store.read_body, read_bodies=store.read_bodies)


def _runs(store: SqliteStore) -> list[RunInfo]:
    return list(store.list_runs(RunFilter(with_implicit=True)))


def findings(home: Home, *functions: Function, name: str = "agent") -> list[Finding]:
    with evidence_of(home, name) as evidence:
        return [finding for function in functions for finding in function(evidence)]


def all_findings(home: Home, name: str = "agent") -> list[Finding]:
    """What every check says; none of them may fail itself."""
    with evidence_of(home, name) as evidence:
        findings, _, failed = run_checks(evidence)
    assert failed == {}
    return findings


def span_named(home: Home, name: str, run: str = "agent", place: int = 0) -> SpanInfo:
    with evidence_of(home, run) as evidence:
        return [span for span in evidence.run.spans if span.name == name][place]


# --- Requests and answers of a model (OpenAI chat) --------------------------------------

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"enum": ["C", "F"]},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}


def request(*messages: dict[str, Any], tools: Any = (WEATHER,), text: str = "hello") -> str:
    history = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": text},
        *messages,
    ]
    body: dict[str, Any] = {"model": "gpt-4o", "messages": history}
    return json.dumps({**body, "tools": list(tools)} if tools else body)


def call(arguments: Any, call_id: str = "call_1", name: str = "weather") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def requested_calls(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(text: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def answer(*calls: dict[str, Any], text: str = "") -> str:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = list(calls)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return json.dumps({"object": "chat.completion", "model": "gpt-4o", "choices": [choice]})


def think(run: Span, sent: str, got: str, name: str = "chat", **attributes: Any) -> Span:
    span = run.child(name, "llm", {"model": "gpt-4o", **attributes}, sent)
    span.end(body=got)
    return span


def use(
    run: Span,
    body: Any = '{"city": "Oslo"}',
    call_id: str | None = "call_1",
    error: BaseException | None = None,
    name: str = "weather",
    output: str = "rain",
) -> Span:
    span = run.child(name, "tool", {"tool_call_id": call_id} if call_id else None, body)
    span.end(error, body=None if error else output)
    return span
