"""Runs in memory, for tests of trajectories: spans with bodies, without a store.

run = RunBuilder()
agent = run.span("agent", "Planner", input="Find the rate.")
run.call(agent, [user("Find the rate.")], reply("Let me look.", calls=[("c1", "rate", "{}")]))
trajectory = run.trajectory()
"""

from __future__ import annotations

import json
from typing import Any

from vestige.query.evidence import Evidence
from vestige.query.trajectory import Trajectory, build_trajectory
from vestige.record.run import BodyRef, LogInfo, Run, RunInfo, SpanInfo

SECOND_NS = 10**9


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, calls: list[tuple[str, str, str]] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return message


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def reply(text: str | None, calls: list[tuple[str, str, str]] | None = None) -> str:
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": assistant(text, calls), "finish_reason": reason}
    return json.dumps({"object": "chat.completion", "model": "gpt-5", "choices": [choice]})


def request(messages: list[dict[str, Any]]) -> str:
    return json.dumps({"model": "gpt-5", "messages": messages, "seed": 1})


class RunBuilder:
    """Collects the spans and logs of one run. Each span takes a second."""

    def __init__(self, name: str = "main") -> None:
        self.bodies: list[bytes] = []
        self.spans: list[SpanInfo] = []
        self.logs: list[LogInfo] = []
        self.name = name
        self.root = self.span("run", name, parent=None)

    def span(
        self,
        type: str,
        name: str,
        parent: SpanInfo | None = None,
        *,
        input: str | None = None,
        output: str | None = None,
        status: str | None = "ok",
        component: str = "program",
        attributes: dict[str, Any] | None = None,
        at_s: float | None = None,
    ) -> SpanInfo:
        number = len(self.spans) + 1
        if parent is None and self.spans:
            parent = self.spans[0]
        span = SpanInfo(
            id=f"{number:016x}",
            short_id=f"r1.s{number}",
            parent_id=None if parent is None else parent.id,
            writer="w",
            seq=number,
            started_ns=int((number if at_s is None else at_s) * SECOND_NS),
            type=type,
            name=name,
            component=component,
            status=status,
            duration_ns=None if status is None else SECOND_NS,
            attributes=attributes or {},
            redacted={},
            input=self._body(input),
            output=self._body(output),
        )
        self.spans.append(span)
        return span

    def call(
        self,
        parent: SpanInfo | None,
        messages: list[dict[str, Any]],
        output: str | None,
        **options: Any,
    ) -> SpanInfo:
        return self.span("llm", "chat", parent, input=request(messages), output=output, **options)

    def log(self, message: str, span: SpanInfo | None = None, level: str = "info") -> None:
        at = self.spans[-1].started_ns + 1
        self.logs.append(
            LogInfo(
                span.id if span else None,
                "w",
                10_000 + len(self.logs),
                at,
                level,
                "program",
                message,
                {},
                {},
                None,
            )
        )

    def _body(self, text: str | None) -> BodyRef | None:
        if text is None:
            return None
        self.bodies.append(text.encode())
        return BodyRef(len(self.bodies) - 1, len(self.bodies[-1]))

    def evidence(self) -> Evidence:
        def read(id: int, begin: int, length: int | None) -> bytes:
            return self.bodies[id][begin : None if length is None else begin + length]

        info = RunInfo(
            id="r" * 32,
            short_id="r1",
            name=self.name,
            outcome=self.spans[0].status or "running",
            started_ns=0,
            ended_ns=None,
            duration_ns=None,
            last_ns=self.spans[-1].started_ns,
            span_count=len(self.spans),
            log_count=len(self.logs),
            error_count=0,
            conversation_id=None,
            component="program",
            input_tokens=0,
            output_tokens=0,
            pinned=False,
            implicit=False,
        )
        return Evidence(Run(info=info, spans=self.spans, logs=self.logs, links=[]), read)

    def trajectory(self) -> Trajectory:
        return build_trajectory(self.evidence())
