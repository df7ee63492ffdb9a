"""MCP: tools that a client calls, and the tools that a server runs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from vestige.emit import context
from vestige.emit.replayed_tools import ReplayedResult
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("mcp")


def install(module: ModuleType) -> None:
    """Wrap the client. `module` is mcp.client.session."""
    result_class = module.types.CallToolResult

    def restore(found: ReplayedResult, args: Any, kwargs: Any) -> Any:
        text = found.value if found.error is None else str(found.error)
        is_text = isinstance(text, str)
        content = [{"type": "text", "text": text}] if is_text else text or []
        fields = {"content": content, "isError": found.error is not None}
        return result_class.model_validate(fields)

    record_calls(_tracker, module.ClientSession, "call_tool", _describe_call, _read_result, restore)


def install_server(module: ModuleType) -> None:
    """Wrap the server's tools. `module` is the one that has its ToolManager."""
    record_calls(_tracker, module.ToolManager, "call_tool", _describe_execution, _read_result)


def _describe_call(session: Any, args: Any, kwargs: Any) -> Call | None:
    name = str(kwargs.get("name", args[0] if args else "tool"))
    ambient = context.current()
    if ambient is not None and ambient.type == "tool" and ambient.name.endswith(name):
        return None  # The framework's span of the same tool.
    arguments = kwargs.get("arguments", args[1] if len(args) > 1 else None)
    return Call(name, "tool", to_plain(arguments or {}))


def _describe_execution(manager: Any, args: Any, kwargs: Any) -> Call:
    name = kwargs.get("name", args[0] if args else "tool")
    return Call(f"tools/call {name}", "step", None, None, {"tool.name": str(name)})


def _read_result(result: Any) -> Outcome:
    content = getattr(result, "content", result)
    texts = [getattr(block, "text", None) for block in content] if isinstance(content, list) else []
    text = "\n".join(each for each in texts if isinstance(each, str))
    failed = getattr(result, "isError", None) is True or getattr(result, "is_error", None) is True
    return Outcome(text or to_plain(content), (text or "the tool failed") if failed else None)
