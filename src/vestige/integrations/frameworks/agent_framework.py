"""Microsoft Agent Framework: tools with their arguments and results, and handoffs.

Agents and workflows are spans of its own, which opentelemetry.py records. Its switch for contents
is left alone: with it, contents reach the program's logs and exporters. So the tasks and results of
agents are read where it describes an agent to its tracer.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks import opentelemetry
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("agent_framework")


def install(module: ModuleType) -> None:
    """Wrap the tools. `module` is agent_framework._tools."""
    record_calls(_tracker, module.FunctionTool, "invoke", _describe_tool, _read_result)


def install_agents(module: ModuleType) -> None:
    """Read what agents get and answer. `module` is agent_framework.observability."""
    owner: Any = module
    layer = owner.AgentTelemetryLayer
    trace = layer._trace_agent_invocation
    describe, capture = owner._get_response_attributes, owner._capture_response
    described: list[tuple[Any, Any]] = []
    """The latest attributes and their response, which are captured right after."""

    @functools.wraps(trace)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        execute = kwargs.get("execute")
        if execute is None:
            return trace(self, *args, **kwargs)

        def execute_in_span() -> Any:
            guarded(_add_task)(kwargs.get("messages"))
            return execute()

        return trace(self, *args, **{**kwargs, "execute": execute_in_span})

    @functools.wraps(describe)
    def get_response_attributes(attributes: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        found = describe(attributes, response, *args, **kwargs)
        described[:] = [(found, response)]
        return found

    @functools.wraps(capture)
    def capture_response(*args: Any, **kwargs: Any) -> Any:
        latest = described.pop() if described else (None, None)
        if latest[0] is not None and latest[0] is kwargs.get("attributes"):
            guarded(_add_result)(kwargs.get("span"), latest[1])
        return capture(*args, **kwargs)

    layer._trace_agent_invocation = traced
    owner._get_response_attributes = get_response_attributes
    owner._capture_response = capture_response


def _add_task(messages: Any) -> None:
    if not isinstance(messages, (list, tuple)):
        messages = [messages]
    texts = [(getattr(each, "role", None), getattr(each, "text", each)) for each in messages]
    if len(texts) == 1:
        opentelemetry.add_agent_task(to_plain(texts[0][1]))
    elif texts:
        opentelemetry.add_agent_task(
            [{"role": str(role), "content": to_plain(text)} for role, text in texts]
        )


def _add_result(span: Any, response: Any) -> None:
    if span is not None:
        text = getattr(response, "text", None)
        opentelemetry.add_agent_result(opentelemetry.key_of(span), text or None)


def install_handoffs(module: ModuleType) -> None:
    """Record handoffs, whose tools never run. `module` is agent_framework_orchestrations._handoff.

    A middleware ends such a call with an exception, which is not a failure.
    """
    owner = module._AutoHandoffMiddleware
    original = owner.process

    @functools.wraps(original)
    async def process(self: Any, context: Any, *args: Any, **kwargs: Any) -> None:
        _record_handoff(self, context)
        await original(self, context, *args, **kwargs)

    owner.process = process


@guarded
def _record_handoff(middleware: Any, context: Any) -> None:
    target = middleware._handoff_functions.get(context.function.name)
    if target is None:
        return
    call_id = context.metadata.get("call_id")
    arguments = to_plain(getattr(context, "arguments", None) or {})
    span = _tracker.open(str(target), "handoff", arguments, call_id)
    if span is not None:
        span.end()


def _describe_tool(tool: Any, args: Any, kwargs: Any) -> Call:
    arguments = kwargs.get("arguments") or getattr(kwargs.get("context"), "arguments", None)
    return Call(str(tool.name), "tool", to_plain(arguments or {}), kwargs.get("tool_call_id"))


def _read_result(result: Any) -> Outcome:
    if isinstance(result, list):
        texts = [getattr(part, "text", None) for part in result]
        if texts and all(isinstance(text, str) for text in texts):
            return Outcome("\n".join(str(text) for text in texts))
    return Outcome(to_plain(result))
