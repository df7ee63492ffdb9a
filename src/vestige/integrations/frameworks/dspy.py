"""DSPy: modules and tools, by a callback beside those of the program."""

from __future__ import annotations

import functools
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker

_AGENTS = ("ReAct", "CodeAct", "RLM")
"""Modules that call tools in a loop."""


def install(module: ModuleType) -> None:
    """Add the callback to those of the settings. `module` is dspy.dsp.utils.settings."""
    original = module.Settings.get
    added: list[Any] = []

    @functools.wraps(original)
    def get(self: Any, key: str, *default: Any) -> Any:
        found = original(self, key, *default)
        if key != "callbacks":
            return found
        if not added:
            guarded(_add_callback)(added)
        return [*(found or ()), *(callback for callback in added if callback not in (found or ()))]

    module.Settings.get = get


def _add_callback(added: list[Any]) -> None:
    base = import_module("dspy.utils.callback").BaseCallback
    added.append(type("VestigeCallback", (_Events, base), {})())


class _Events:
    """Callbacks of DSPy, which passes an id to each. They run in the context of the call."""

    def __init__(self) -> None:
        self._spans = SpanTracker("dspy")

    @guarded
    def on_module_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        name = type(instance).__name__
        kind = "agent" if name in _AGENTS else "step"
        attributes = {"agent_name": name} if kind == "agent" else None
        body = to_plain(inputs.get("kwargs", inputs)) if kind == "agent" else None
        self._spans.start(call_id, name, kind, body=body, attributes=attributes)

    @guarded
    def on_module_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        values = getattr(outputs, "_store", outputs)
        if isinstance(values, dict):
            values = {key: value for key, value in values.items() if key != "trajectory"}
        self._spans.end(call_id, body=to_plain(values), error=exception)

    @guarded
    def on_tool_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        arguments = inputs.get("kwargs", inputs) if isinstance(inputs, dict) else inputs
        self._spans.start(call_id, str(instance.name), "tool", body=to_plain(arguments))

    @guarded
    def on_tool_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        self._spans.end(call_id, body=to_plain(outputs), error=exception)

    @guarded
    def on_lm_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self._spans.start_model(call_id, request=lambda: to_plain(inputs))

    @guarded
    def on_lm_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        self._spans.end_model(call_id, "lm", response=to_plain(outputs), error=exception)
