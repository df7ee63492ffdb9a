"""AutoGen: teams, agents and tools. Its own spans have no arguments and results."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from vestige.emit.replayed_tools import restore_text
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.values import to_plain
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("autogen")


def install(module: ModuleType) -> None:
    """Wrap the tools. `module` is autogen_core.tools._base."""
    record_calls(_tracker, module.BaseTool, "run_json", _describe_tool, restore=restore_text)
    streaming = getattr(module, "BaseStreamTool", None)  # Agents and teams as tools.
    if streaming is not None:
        record_calls(_tracker, streaming, "run_json_stream", _describe_tool, _read_team)


def install_teams(module: ModuleType) -> None:
    """Wrap the teams. `module` is autogen_agentchat.teams._group_chat._base_group_chat."""
    record_calls(_tracker, module.BaseGroupChat, "run_stream", _describe_team, _read_team)


def _describe_tool(tool: Any, args: Any, kwargs: Any) -> Call:
    arguments = kwargs.get("args", args[0] if args else None)
    call_id = kwargs.get("call_id", args[2] if len(args) > 2 else None)
    return Call(str(tool.name), "tool", to_plain(dict(arguments or {})), call_id)


def _describe_team(team: Any, args: Any, kwargs: Any) -> Call:
    task = kwargs.get("task")
    return Call(str(getattr(team, "name", None) or type(team).__name__), "step", to_plain(task))


def _read_team(last: Any) -> Outcome:
    messages = getattr(last, "messages", None)
    return Outcome(to_plain(getattr(messages[-1], "content", None)) if messages else None)
