"""CrewAI: crews, tasks, agents and tools, from the events of its bus.

Listeners of the bus run in threads of a pool, where the ambient span cannot be set. So `emit` is
wrapped, which runs in the context of the work.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker

_KINDS = {
    "crew_kickoff": "step",
    "flow": "step",
    "method_execution": "step",
    "task": "step",
    "agent_execution": "agent",
    "lite_agent_execution": "agent",
    "tool_usage": "tool",
    "llm_guardrail": "guardrail",
    "knowledge_retrieval": "retriever",
}
_EXECUTOR = "AgentExecutor"
"""The flow that each agent runs, whose methods only connect others."""
_STARTED = "_started"
_ENDINGS = ("_completed", "_finished", "_failed", "_error")


def install(module: ModuleType) -> None:
    """Record the events of the bus. `module` is crewai.events.event_bus."""
    events = _Events()
    original: Callable[..., Any] = module.CrewAIEventsBus.emit

    def emit(self: Any, source: Any, event: Any) -> Any:
        events.record(source, event)
        return original(self, source, event)

    emit.__wrapped__ = original  # type: ignore[attr-defined]  # for inspect.signature
    module.CrewAIEventsBus.emit = emit


class _Events:
    def __init__(self) -> None:
        self._spans = SpanTracker("crewai")

    @guarded
    def record(self, source: Any, event: Any) -> None:
        name = str(getattr(event, "type", ""))
        if name.endswith(_STARTED):
            kind = name.removesuffix(_STARTED)
            if kind == "llm_call":
                self._spans.start_model(("llm_call", id(source)))
            elif kind in _KINDS and getattr(event, "flow_name", None) != _EXECUTOR:
                self._start(kind, source, event)
            return
        for ending in _ENDINGS:
            if name.endswith(ending):
                self._end(name.removesuffix(ending), source, event)
                return

    def _start(self, kind: str, source: Any, event: Any) -> None:
        key, attributes = _key(kind, source, event), {}
        name, body = _describe(kind, source, event)
        if _KINDS[kind] == "agent":
            attributes["agent_name"] = name
        self._spans.start(key, name, _KINDS[kind], body=body, attributes=attributes)

    def _end(self, kind: str, source: Any, event: Any) -> None:
        if kind == "llm_call":
            self._spans.end_model(
                ("llm_call", id(source)),
                "llm_call",
                response=to_plain(getattr(event, "response", None)),
                attributes={"model": getattr(event, "model", None)},
                error=getattr(event, "error", None),
            )
            return
        error = getattr(event, "error", None)
        if error is None:
            failure = getattr(event, "failure", None)
            error = None if failure is None else getattr(failure, "message", None) or str(failure)
        output = getattr(event, "output", None)
        self._spans.end(
            _key(kind, source, event),
            body=to_plain(getattr(output, "raw", output)),
            error=error,
        )


def _key(kind: str, source: Any, event: Any) -> Any:
    """Return the key of an event's span, which its start and end have in common."""
    if kind == "tool_usage":
        return kind, event.tool_name, str(event.tool_args), getattr(event, "agent_key", None)
    if kind in ("agent_execution", "lite_agent_execution"):
        return kind, id(getattr(event, "agent", source)), getattr(event, "task_id", None)
    if kind == "method_execution":
        return kind, id(source), getattr(event, "method_name", None)
    return kind, id(source)


def _describe(kind: str, source: Any, event: Any) -> tuple[str, Any]:
    """Return the name and the input of an event's span."""
    if kind == "tool_usage":
        return str(event.tool_name), to_plain(event.tool_args)
    if kind == "agent_execution":
        return str(getattr(event.agent, "role", "agent")).strip(), event.task_prompt
    if kind == "lite_agent_execution":
        return str(event.agent_info.get("role", "agent")).strip(), to_plain(event.messages)
    if kind == "crew_kickoff":
        return str(event.crew_name or "crew"), to_plain(event.inputs)
    if kind == "task":
        task = getattr(event, "task", None) or source
        label = getattr(task, "name", None) or getattr(task, "description", None) or "task"
        return str(label)[:80], None
    if kind == "method_execution":
        return str(event.method_name), None
    if kind == "flow":
        return str(event.flow_name), None
    return kind, to_plain(getattr(event, "query", None))
