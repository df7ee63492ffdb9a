"""smolagents: agents, their steps and their tools, which have no callbacks for their start."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.emit.replayed_tools import restore_value
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls


def install(module: ModuleType) -> None:
    """Wrap the methods of agents and tools. `module` is smolagents.agents."""
    tracker = SpanTracker("smolagents")
    tool = import_module("smolagents.tools").Tool
    record_calls(tracker, tool, "__call__", _describe_tool, restore=restore_value)
    record_calls(tracker, module.MultiStepAgent, "_run_stream", _describe_agent, _read_answer)
    for name in ("CodeAgent", "ToolCallingAgent", "MultiStepAgent"):
        agent = getattr(module, name, None)
        if agent is not None:
            record_calls(tracker, agent, "_step_stream", _describe_step, _read_step)


def _describe_tool(tool: Any, args: Any, kwargs: Any) -> Call | None:
    if tool.name == "final_answer":
        return None  # The answer is the output of the agent.
    arguments = {key: value for key, value in kwargs.items() if key != "sanitize_inputs_outputs"}
    names = list(getattr(tool, "inputs", None) or ())
    if (
        len(args) == 1
        and isinstance(args[0], dict)
        and not arguments
        and set(args[0]) <= set(names)
    ):
        arguments = args[0]
    else:
        arguments.update(zip(names, args, strict=False))
    return Call(str(tool.name), "tool", to_plain(arguments))


def _describe_agent(agent: Any, args: Any, kwargs: Any) -> Call:
    name = getattr(agent, "name", None) or type(agent).__name__
    task = kwargs.get("task", args[0] if args else None)
    return Call(str(name), "agent", task, None, {"agent_name": str(name)})


def _describe_step(agent: Any, args: Any, kwargs: Any) -> Call:
    step = kwargs.get("memory_step", args[0] if args else None)
    return Call(f"step {getattr(step, 'step_number', '')}".strip())


def _read_answer(last: Any) -> Outcome:
    return Outcome(to_plain(getattr(last, "output", None)))


def _read_step(last: Any) -> Outcome:
    return Outcome()
