"""Recorded results in place of tools, in a program that `vestige replay --tools recorded` runs.

`player` is set before the program starts (boot/__init__.py); otherwise tools run as usual. Every
tool span that opens is noted, with its arguments as they are recorded. The function that is called
inside the span asks for its result: that of `@vestige.tool`, or a function of a framework
(integrations/frameworks/tool_replay.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from vestige.emit import context
from vestige.emit.span import Span

ATTRIBUTE = "replay.recorded"
"""Attribute of a tool span whose result comes from a recording."""

TEXT_RESULT = "tool_result.is_text"
"""Attribute of a tool span whose result is a text that reads like JSON."""

STATE_RESULT = "tool_result.is_state"
"""Attribute of a tool span whose result is an object that the framework acts on, such as a jump to
another step. It cannot be restored, so the tool runs in a replay."""

_NOTED_MAX = 1000


class NotedCall(NamedTuple):
    """A tool call whose span is open."""

    name: str
    arguments: Any
    call_id: str | None


class ReplayedResult(NamedTuple):
    """The recorded end of a tool call."""

    value: Any = None
    error: Exception | None = None
    text: str | None = None
    """The text that the model was given as the result. None: unknown."""


class ToolAnswers(Protocol):
    """The recorded tool calls."""

    def note(self, call: NotedCall) -> None:
        """Count a tool call that begins."""

    def find(
        self, call: NotedCall, function: Any, redact: Callable[[str], str]
    ) -> ReplayedResult | None:
        """Return the result. None: the tool runs. Raise if the call is not in the recording."""


player: ToolAnswers | None = None
_noted: dict[str, NotedCall | None] = {}
"""Calls by their spans' ids. None: the call has asked for its result."""


def note(span: Span, name: str, arguments: Any, call_id: str | None) -> None:
    """Note a tool call whose span opens."""
    if player is not None and span.type == "tool":
        call = NotedCall(name, arguments, call_id)
        if span.id not in _noted:
            player.note(call)
        elif _noted[span.id] is None:
            return
        _noted[span.id] = call
        while len(_noted) > _NOTED_MAX:
            del _noted[next(iter(_noted))]


def find_result(
    function: Any = None, *, arguments: Any = None, call_id: str | None = None
) -> ReplayedResult | None:
    """Return the recorded result for the ambient tool span. None: the tool runs.

    Each span asks once. `arguments` and `call_id` add what was not known when the span was opened.
    """
    span = context.current()
    if player is None or span is None:
        return None
    call = _noted.get(span.id)
    if call is None:
        return None
    _noted[span.id] = None
    call = NotedCall(
        call.name, call.arguments if arguments is None else arguments, call_id or call.call_id
    )
    found = player.find(call, function, span._emitter.redact)
    if found is not None:
        span.set_attributes(**{ATTRIBUTE: True})
    return found


Restore = Callable[[ReplayedResult, "tuple[Any, ...]", "dict[str, Any]"], Any]
"""Turn a recorded result into that of a call with these arguments, or raise its error."""


def restore_value(found: ReplayedResult, args: Any = (), kwargs: Any = None) -> Any:
    """Return the recorded value, or raise the recorded error."""
    if found.error is not None:
        raise found.error
    return found.value


def restore_text(found: ReplayedResult, args: Any = (), kwargs: Any = None) -> Any:
    """Return the text that the model was given, or else the value. Raise the recorded error."""
    if found.error is None and found.text is not None:
        return found.text
    return restore_value(found)


def replayed(function: Callable[..., Any], restore: Restore = restore_value) -> Callable[..., Any]:
    """Wrap a function so that a recorded result replaces its call. Generators run as usual."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def replayed_coroutine(*args: Any, **kwargs: Any) -> Any:
            found = find_result(function)
            if found is None:
                return await function(*args, **kwargs)
            return restore(found, args, kwargs)

        return replayed_coroutine

    @functools.wraps(function)
    def replayed_call(*args: Any, **kwargs: Any) -> Any:
        found = find_result(function)
        return function(*args, **kwargs) if found is None else restore(found, args, kwargs)

    return replayed_call


def reads_like_json(result: Any) -> bool:
    """Return whether a result is a text that could be taken for recorded JSON."""
    if result.__class__ is not str or not result:
        return False
    if result[0] in '{["':
        return bool(result.rstrip()[-1:] == {"{": "}", "[": "]", '"': '"'}[result[0]])
    if result in ("true", "false", "null"):
        return True
    try:
        float(result[:40])
    except ValueError:
        return False
    return True
