"""Microsoft Agent Framework: tools with their arguments and results, and handoffs.

Agents and workflows are spans of its own, which opentelemetry.py records. Its switch for contents
is left alone: with it, contents reach the program's logs and exporters.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.values import to_plain
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("agent_framework")


def install(module: ModuleType) -> None:
    """Wrap the tools. `module` is agent_framework._tools."""
    record_calls(_tracker, module.FunctionTool, "invoke", _describe_tool, _read_result)


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
