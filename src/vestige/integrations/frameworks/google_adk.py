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


def install(module: ModuleType) -> None:
    """Read the tool calls that ADK traces. `module` is google.adk.telemetry.tracing."""
    original = module.trace_tool_call

    @functools.wraps(original)
    def trace_tool_call(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        _end_tool(*args, **kwargs)

    module.trace_tool_call = trace_tool_call  # type: ignore[attr-defined]


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
def _end_tool(
    tool: Any, args: Any, function_response_event: Any, error: Any = None, **_: Any
) -> None:
    """End the span of the tool that ran: its result is known here only."""
    key = opentelemetry.find_current_key()
    content = getattr(function_response_event, "content", None)
    parts = getattr(content, "parts", None) or [None]
    response = getattr(parts[0], "function_response", None)
    call_id = getattr(response, "id", None)
    opentelemetry.spans.complete(key, body=to_plain(args), call_id=call_id)
    attributes = {} if call_id is None else {"tool_call_id": str(call_id)}
    result = to_plain(getattr(response, "response", None))
    opentelemetry.spans.end(key, body=result, error=error, attributes=attributes)
