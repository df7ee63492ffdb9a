"""Google ADK: arguments and results of tools, which its own spans leave out by default.

Agents, tools and transfers are spans of its own, which opentelemetry.py records.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from vestige.emit.replayed_tools import find_result, restore_value
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks import opentelemetry
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.tool_replay import is_replaying

_caught: dict[Any, Exception] = {}
"""Exceptions of tools that callbacks may turn into results, by the key of the tool's span."""


def install(module: ModuleType) -> None:
    """Read the tool calls that ADK traces. `module` is google.adk.telemetry.tracing."""
    original = module.trace_tool_call

    @functools.wraps(original)
    def trace_tool_call(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        _end_tool(*args, **kwargs)

    module.trace_tool_call = trace_tool_call  # type: ignore[attr-defined]


def install_errors(module: ModuleType) -> None:
    """Keep exceptions that callbacks handle. `module` is google.adk.plugins.plugin_manager."""
    original = module.PluginManager.run_on_tool_error_callback

    @functools.wraps(original)
    async def run_on_tool_error_callback(self: Any, **kwargs: Any) -> Any:
        _keep_error(kwargs.get("error"))
        return await original(self, **kwargs)

    module.PluginManager.run_on_tool_error_callback = run_on_tool_error_callback


def install_tools(module: ModuleType) -> None:
    """Answer tools from a recording in a replay. `module` is google.adk.tools.function_tool."""
    if not is_replaying():
        return
    original = module.FunctionTool.run_async

    @functools.wraps(original)
    async def run_async(self: Any, *, args: Any, tool_context: Any) -> Any:
        call_id = getattr(tool_context, "function_call_id", None)
        found = find_result(original, arguments=to_plain(args), call_id=call_id)
        if found is None:
            return await original(self, args=args, tool_context=tool_context)
        return restore_value(found)

    module.FunctionTool.run_async = run_async


@guarded
def _keep_error(error: Any) -> None:
    key = opentelemetry.find_current_key()
    span = opentelemetry.spans.get(key)
    if span is not None and span.type == "tool" and error is not None:
        _caught[key] = error


@guarded
def _end_tool(
    tool: Any, args: Any, function_response_event: Any, error: Any = None, **_: Any
) -> None:
    """End the span of the tool that ran: its result is known here only."""
    key = opentelemetry.find_current_key()
    error = _caught.pop(key, None) or error
    content = getattr(function_response_event, "content", None)
    parts = getattr(content, "parts", None) or [None]
    response = getattr(parts[0], "function_response", None)
    call_id = getattr(response, "id", None)
    opentelemetry.spans.complete(key, body=to_plain(args), call_id=call_id)
    attributes = {} if call_id is None else {"tool_call_id": str(call_id)}
    result = to_plain(getattr(response, "response", None))
    opentelemetry.spans.end(key, body=result, error=error, attributes=attributes)
