"""Recorded results in place of tools, in a program that `vestige replay --tools recorded` runs.

`find_result` is set before the program starts (boot/__init__.py); otherwise tools run as usual.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from vestige.emit import context

ATTRIBUTE = "replay.recorded"
"""Attribute of a tool span whose result comes from a recording."""

TEXT_RESULT = "tool_result.is_text"
"""Attribute of a tool span whose result is a text that reads like JSON."""


class ReplayedResult(NamedTuple):
    """The recorded end of a tool call."""

    value: Any = None
    error: Exception | None = None


FindResult = Callable[[str, Any, Callable[..., Any], Callable[[str], str]], ReplayedResult | None]
"""Find the result of a tool, by name, arguments, function and redaction. None: run the tool."""

find_result: FindResult | None = None


def replayed(
    function: Callable[..., Any], name: str, read_arguments: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """Wrap a function so that a recorded result replaces its call. Generators run as usual."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def replayed_coroutine(*args: Any, **kwargs: Any) -> Any:
            found = _find(function, name, read_arguments(args, kwargs))
            return await function(*args, **kwargs) if found is None else _finish(found)

        return replayed_coroutine

    @functools.wraps(function)
    def replayed_call(*args: Any, **kwargs: Any) -> Any:
        found = _find(function, name, read_arguments(args, kwargs))
        return function(*args, **kwargs) if found is None else _finish(found)

    return replayed_call


def _find(function: Callable[..., Any], name: str, arguments: Any) -> ReplayedResult | None:
    span = context.current()
    if find_result is None or span is None:
        return None
    found = find_result(name, arguments, function, span._emitter.redact)
    if found is not None:
        span.set_attributes(**{ATTRIBUTE: True})
    return found


def _finish(found: ReplayedResult) -> Any:
    if found.error is not None:
        raise found.error
    return found.value


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
