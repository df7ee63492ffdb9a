"""AG2: agents and tools, by a middleware in each turn of an agent."""

from __future__ import annotations

import functools
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.emit.replayed_tools import ReplayedResult, restore_text
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("ag2")


def install(module: ModuleType) -> None:
    """Add the middleware to the turns of all agents. `module` is ag2.agent."""
    middleware_class = _make_middleware(module.BaseMiddleware)
    original = module.Agent._turn_scope

    @functools.wraps(original)
    def turn_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        def make_middleware(event: Any, context: Any) -> Any:
            middleware = middleware_class(event, context)
            middleware.agent_name = self.name
            return middleware

        added = kwargs.get("additional_middleware", ())
        return original(
            self, *args, **{**kwargs, "additional_middleware": (make_middleware, *added)}
        )

    module.Agent._turn_scope = turn_scope


def _make_middleware(base: type) -> type:
    class VestigeMiddleware(base):  # type: ignore[misc]  # known at run time only
        agent_name = "agent"

        async def on_turn(self, call_next: Any, event: Any, context: Any) -> Any:
            return await call_next(event, context)

        async def on_tool_execution(self, call_next: Any, event: Any, context: Any) -> Any:
            return await call_next(event, context)

    record_calls(_tracker, VestigeMiddleware, "on_turn", _describe_turn, _read_turn)
    record_calls(
        _tracker, VestigeMiddleware, "on_tool_execution", _describe_tool, _read_tool, _restore_tool
    )
    return VestigeMiddleware


def _describe_turn(middleware: Any, args: Any, kwargs: Any) -> Call:
    event = kwargs.get("event", args[1] if len(args) > 1 else None)
    name = str(middleware.agent_name)
    return Call(name, "agent", _text_of(event), None, {"agent_name": name})


def _describe_tool(middleware: Any, args: Any, kwargs: Any) -> Call:
    event = kwargs.get("event", args[1] if len(args) > 1 else None)
    return Call(str(event.name), "tool", event.arguments, getattr(event, "id", None))


def _read_turn(response: Any) -> Outcome:
    return Outcome(_text_of(response))


def _read_tool(event: Any) -> Outcome:
    error = getattr(event, "error", None)
    if error is not None:
        return Outcome(None, f"{type(error).__name__}: {error}")
    return Outcome(_text_of(getattr(event, "result", event)))


def _restore_tool(found: ReplayedResult, args: Any, kwargs: Any) -> Any:
    events = import_module("ag2.events.tool_events")
    call = kwargs.get("event", args[2] if len(args) > 2 else None)
    if found.error is not None:
        return events.ToolErrorEvent.from_call(call, found.error)
    return events.ToolResultEvent.from_call(call, restore_text(found))


def _text_of(value: Any) -> Any:
    """Return the text of an event, which has its own content or parts with contents."""
    if isinstance(value, (list, tuple)):
        return "\n".join(str(_text_of(part)) for part in value)
    for name in ("content", "parts", "message"):
        found = getattr(value, name, None)
        if found is not None:
            return found if isinstance(found, str) else _text_of(found)
    data = getattr(value, "data", None)
    return to_plain(data if data is not None else value)
