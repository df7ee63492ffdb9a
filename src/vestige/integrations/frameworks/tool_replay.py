"""Recorded results in place of a framework's tools: `vestige replay --tools recorded`.

A framework's callbacks open the span of a tool. The function that the framework then calls is
wrapped here, and returns the recorded result of that span. Frameworks whose methods are wrapped
anyway (integrations/frameworks/wrapping.py) do the same there, and those that need more than a
wrapped function in modules of their own (langchain, openai_agents).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from vestige._runtime.import_hooks import when_imported
from vestige.emit import replayed_tools
from vestige.emit.replayed_tools import (
    ReplayedResult,
    Restore,
    replayed,
    restore_text,
)
from vestige.integrations.failure_counts import record_fault

_MARK = "_vestige_replayed"


class Hook(NamedTuple):
    """A function that runs tools: a method of a class, or an attribute of its instances."""

    owner: str
    names: tuple[str, ...]
    restore: Restore = restore_text
    is_attribute: bool = False


def is_replaying() -> bool:
    """Return whether tools are answered from a recording in this process."""
    return replayed_tools.player is not None


def install(is_selected: Callable[[str], bool]) -> None:
    """Wrap the functions of the selected frameworks, each when the program imports it."""
    if is_replaying():
        for framework, modules in HOOKS.items():
            if is_selected(framework):
                for module, hooks in modules.items():
                    when_imported(module, functools.partial(_install_hooks, framework, hooks))


def _install_hooks(framework: str, hooks: tuple[Hook, ...], module: ModuleType) -> None:
    for hook in hooks:
        try:
            owner = getattr(module, hook.owner)
            if hook.is_attribute:
                _replay_attributes(owner, hook.names, hook.restore)
                continue
            for name in hook.names:
                replay_method(owner, name, hook.restore)
        except Exception as error:  # noqa: BLE001  # an unsupported version of the framework
            record_fault(f"replayed tools of {framework}", error)


def replay_method(owner: type, name: str, restore: Restore = restore_text) -> None:
    """Let a method return the recorded result. It is replaced in the class that defines it."""
    for base in owner.__mro__:
        method = vars(base).get(name)
        if method is not None:
            if not getattr(method, _MARK, False):
                setattr(base, name, _wrap(method, restore))
            return


def _replay_attributes(owner: type, names: tuple[str, ...], restore: Restore) -> None:
    """Let functions that each instance has as attributes return the recorded result."""
    original = vars(owner)["__init__"]

    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name in names:
            function = getattr(self, name, None)
            if callable(function) and not getattr(function, _MARK, False):
                setattr(self, name, _wrap(function, restore))

    owner.__init__ = initialize  # type: ignore[misc]


def _wrap(function: Any, restore: Restore) -> Any:
    wrapped = replayed(function, restore)
    if wrapped is not function:
        setattr(wrapped, _MARK, True)
    return wrapped


def _restore_pydantic_ai(found: ReplayedResult, args: Any, kwargs: Any) -> Any:
    """Raise what tools raise: the framework records the exceptions that it makes of them."""
    exceptions = import_module("pydantic_ai.exceptions")
    raised = {"ToolRetryError": "ModelRetry", "ToolFailedError": "ToolFailed"}
    error_class = getattr(exceptions, raised.get(type(found.error).__name__, ""), None)
    if error_class is not None:
        raise error_class(str(found.error))
    return restore_text(found)


HOOKS: dict[str, dict[str, tuple[Hook, ...]]] = {
    "pydantic_ai": {
        # The toolset of each agent, which passes calls on to functions, MCP servers, ...
        "pydantic_ai.toolsets.combined": (
            Hook("CombinedToolset", ("call_tool",), _restore_pydantic_ai),
        ),
    },
    "crewai": {
        "crewai.tools.base_tool": (
            Hook("BaseTool", ("run", "arun")),
            Hook("Tool", ("run", "arun")),
        ),
        "crewai.tools.structured_tool": (Hook("CrewStructuredTool", ("invoke", "ainvoke")),),
    },
    "llama_index": {
        "llama_index.core.tools.function_tool": (
            Hook("FunctionTool", ("_fn", "_async_fn"), is_attribute=True),
        ),
    },
    "dspy": {"dspy.adapters.types.tool": (Hook("Tool", ("func",), is_attribute=True),)},
    "agent_framework": {
        "agent_framework._tools": (Hook("FunctionTool", ("_invoke_function",)),),
    },
    "opentelemetry": {
        "strands.tools.decorator": (
            Hook("DecoratedFunctionTool", ("_tool_func",), is_attribute=True),
        ),
    },
}
"""Functions that run tools, by integration and module."""
