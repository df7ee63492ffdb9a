"""OpenAI Agents SDK: agents, turns, tools, handoffs and guardrails, by a trace processor."""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.emit import context
from vestige.emit.replayed_tools import find_result, restore_text
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.tool_replay import is_replaying

_TYPES = {
    "agent": "agent",
    "function": "tool",
    "handoff": "handoff",
    "guardrail": "guardrail",
    "turn": "step",
    "task": "step",
    "custom": "step",
    "mcp_tools": "step",
    "speech_group": "step",
}
"""Kinds of the SDK's spans. Others are model calls."""


def install(module: ModuleType) -> None:
    """Add the processor, before those that the program adds or sets. `module` is `agents`."""
    processor = type("VestigeProcessor", (_Events, module.TracingProcessor), {})()
    module.add_trace_processor(processor)
    _keep_processor(processor)
    for name in ("agents.tool", "agents.run_internal.tool_execution"):
        guarded(_note_exceptions)(name, processor)
    if is_replaying():
        guarded(_replay_tools)(import_module("agents.tool"), processor)


def _replay_tools(module: ModuleType, processor: Any) -> None:
    """Answer calls from the recording: those of `@function_tool`, and of other functions."""

    def answering(original: Any) -> Any:
        @functools.wraps(original)
        async def invoke(*args: Any, **kwargs: Any) -> Any:
            context_, arguments = args[-2:]
            call_id = getattr(context_, "tool_call_id", None)
            found = find_result(arguments=arguments, call_id=call_id)
            if found is None:
                return await original(*args, **kwargs)
            if found.error is not None and found.text is not None:
                processor.note_exception((found.error,))
                return found.text  # The SDK made it of the exception.
            return restore_text(found)

        invoke._vestige = True  # type: ignore[attr-defined]
        return invoke

    invoker = getattr(module, "_FailureHandlingFunctionToolInvoker", None)
    if invoker is not None:
        invoker.__call__ = answering(invoker.__call__)
    original = module.FunctionTool.__post_init__

    @functools.wraps(original)
    def post_init(self: Any) -> None:
        original(self)
        function = self.on_invoke_tool
        if inspect.isfunction(function) and not hasattr(function, "_vestige"):
            self.on_invoke_tool = answering(function)

    module.FunctionTool.__post_init__ = post_init


def _note_exceptions(name: str, processor: Any) -> None:
    """Note the exception of a tool, which the SDK turns into a text without it."""
    owner = import_module(name)
    function = "maybe_invoke_function_tool_failure_error_function"
    original = getattr(owner, function)

    @functools.wraps(original)
    async def handle_failure(*args: Any, **kwargs: Any) -> Any:
        processor.note_exception((*args, *kwargs.values()))
        return await original(*args, **kwargs)

    setattr(owner, function, handle_failure)


def _keep_processor(processor: Any) -> None:
    """Add the processor again after the program has replaced all processors by its own."""
    provider = import_module("agents.tracing.provider").DefaultTraceProvider
    original = provider.set_processors

    def set_processors(self: Any, processors: list[Any]) -> None:
        original(self, [*processors, processor])

    provider.set_processors = set_processors


class _Events:
    """The methods of a trace processor."""

    def __init__(self) -> None:
        self._spans = SpanTracker("openai-agents")
        self._exceptions: dict[str, BaseException] = {}
        """Exceptions of open tools, by the ids of our spans."""

    @guarded
    def note_exception(self, arguments: tuple[Any, ...]) -> None:
        span = context.current()
        error = next((each for each in arguments if isinstance(each, BaseException)), None)
        if span is not None and error is not None and span.type == "tool":
            self._exceptions[span.id] = error

    def on_trace_start(self, trace: Any) -> None:
        """Do nothing: the run has a name."""

    def on_trace_end(self, trace: Any) -> None:
        """Do nothing."""

    @guarded
    def on_span_start(self, span: Any) -> None:
        data, key, parent = span.span_data, span.span_id, span.parent_id
        kind = _TYPES.get(data.type)
        if kind is None:
            self._spans.start_model(key, parent, lambda: {"input": to_plain(_field(data, "input"))})
            self._spans.skip(key, parent)
            return
        if data.type == "task":
            self._spans.skip(key, parent)
            return
        name = _field(data, "name") or data.type
        attributes: dict[str, Any] = {}
        if kind == "agent":
            attributes["agent_name"] = name
        elif data.type == "turn":
            name = f"turn {data.turn}"
        self._spans.start(key, name, kind, parent=parent, attributes=attributes)

    @guarded
    def on_span_end(self, span: Any) -> None:
        data, key = span.span_data, span.span_id
        if data.type not in _TYPES:
            self._end_model(key, data, span.error)
            return
        if data.type == "handoff":
            target = _field(data, "to_agent") or "?"
            self._spans.complete(key, name=target, body={"from": data.from_agent, "to": target})
        elif data.type == "function":
            self._spans.complete(key, body=_field(data, "input"))
        attributes = {}
        if data.type == "guardrail":
            attributes["triggered"] = bool(data.triggered)
        error = None if span.error is None else _error_text(span.error)
        ours = self._spans.get(key)
        raised = None if ours is None else self._exceptions.pop(ours.id, None)
        self._spans.end(
            key,
            body=to_plain(_field(data, "output")),
            error=raised or error,
            attributes=attributes,
        )

    def _end_model(self, key: str, data: Any, error: Any) -> None:
        usage = _field(data, "usage") or {}
        response = _field(data, "response")
        self._spans.end_model(
            key,
            data.type,
            response=to_plain(response if response is not None else _field(data, "output")),
            attributes={
                "model": _field(data, "model"),
                "input_tokens": usage.get("input_tokens"),
                "output_tokens": usage.get("output_tokens"),
            },
            error=None if error is None else _error_text(error),
        )
        self._spans.end(key)

    def shutdown(self) -> None:
        """Do nothing: records are written at once."""

    def force_flush(self) -> None:
        """Do nothing."""


def _field(data: Any, name: str) -> Any:
    return getattr(data, name, None)


def _error_text(error: Any) -> str:
    details = error.get("data") or {}
    text = details.get("error") if isinstance(details, dict) else None
    return str(text or error.get("message") or error)
