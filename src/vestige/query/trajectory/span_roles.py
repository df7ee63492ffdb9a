"""The place of each span in a trajectory: model call, action, agent or container.

A scope is a span that has a story of its own: an agent, or a tool that calls models. A span
belongs to its nearest enclosing scope; None is the run itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from vestige.query.evidence import Evidence
from vestige.record.prompt_segments import SPAN_TYPE as ASSEMBLY
from vestige.record.run import SpanInfo

ANCESTORS_MAX: Final = 200
"""Levels of the tree that are followed upward; a deeper span belongs to the run."""

Part = Literal["call", "wrapper", "action", "agent", "container", "skipped"]

_SKIPPED: Final = frozenset([ASSEMBLY, "process", "run"])
_QUIET: Final = frozenset(
    [
        "step",
        "http",
        "embedding",
        "snapshot",
        "state",
        "test",
        "case",
        "suite",
        "file",
        "error",
        "hook",
        "compaction",
    ]
)
"""Types whose spans are not actions, unless they failed."""
_ACTIONS: Final = frozenset(["tool", "retriever", "reranker", "guardrail", "evaluator", "handoff"])
_AGENT_KINDS: Final = (
    ("openinference.span.kind", "AGENT"),
    ("gen_ai.operation.name", "invoke_agent"),
    ("traceloop.span.kind", "agent"),
)
_AGENT_NAMES: Final = ("gen_ai.agent.name", "agent_name", "agent.name", "graph.node.id")
_NAMED: Final = re.compile(r"agent named '([^'\n]{1,60})'")


class SpanTree:
    """The spans of a run with their parts and scopes."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.spans = evidence.spans
        self._wrappers = self._find_wrappers()
        self.around_calls = self._find_around_calls()
        """Ids of the spans that contain a model call."""

    def ancestors(self, span: SpanInfo) -> Iterator[SpanInfo]:
        """Yield the parents of a span, the nearest first."""
        parent = self.spans.get(span.parent_id or "")
        for _ in range(ANCESTORS_MAX):
            if parent is None or parent is span:
                return
            yield parent
            parent = self.spans.get(parent.parent_id or "")

    def part(self, span: SpanInfo) -> Part:
        if span.type == "llm":
            return "wrapper" if span.id in self._wrappers else "call"
        if span.type in _SKIPPED:
            return "skipped"
        if is_agent(span):
            return "agent"
        if span.type in _ACTIONS:
            return "action"
        if span.type in _QUIET or "." in span.type:
            return "container"
        has_body = span.input is not None or span.output is not None
        return "action" if has_body else "container"

    def wrappers_of(self, call: SpanInfo) -> list[SpanInfo]:
        """Return the client spans around a model call."""
        found = []
        for parent in self.ancestors(call):
            if is_scope(parent):
                break
            if parent.id in self._wrappers:
                found.append(parent)
        return found

    def _find_around_calls(self) -> set[str]:
        around: set[str] = set()
        for span in self.evidence.of_type("llm"):
            for parent in self.ancestors(span):
                if parent.id in around:
                    break
                around.add(parent.id)
        return around

    def _find_wrappers(self) -> set[str]:
        """Return the `llm` spans that contain the span of the same call."""
        wrappers: set[str] = set()
        for span in self.evidence.of_type("llm"):
            for parent in self.ancestors(span):
                if parent.type == "llm":
                    wrappers.add(parent.id)
                if parent.type == "llm" or is_scope(parent):
                    break
        return wrappers


def find_call_id(span: SpanInfo) -> str | None:
    """Return the id of the tool call that a span executed."""
    value = span.attributes.get("tool_call_id")
    return str(value) if value not in (None, "") else None


def get_tool_name(span: SpanInfo) -> str:
    value = span.attributes.get("tool_name")
    return value if isinstance(value, str) and value else span.name


def is_scope(span: SpanInfo) -> bool:
    return span.type == "tool" or is_agent(span)


def is_agent(span: SpanInfo) -> bool:
    if span.type == "agent":
        return True
    if span.type != "step":
        return False
    return any(span.attributes.get(key) == value for key, value in _AGENT_KINDS)


def agent_name(span: SpanInfo, task: str | None) -> str:
    """Return the name of an agent span: its attribute, its task, or the span's name."""
    for key in _AGENT_NAMES:
        value = span.attributes.get(key)
        if isinstance(value, str) and value:
            return value
    found = _NAMED.search(task[:2000]) if task else None
    if found is not None:
        return found[1]
    return span.name.removesuffix(".run").removeprefix("invoke_agent ")
