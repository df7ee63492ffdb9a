"""The ambient form: `@trace` and `traced_run`, for code that has no span to pass down.

    @vestige.trace
    def plan(goal): ...                  # a step of the ambient run, or a run of its own

    with vestige.traced_run("nightly"):  # a run of the process's default recorder
        plan("ship it")

Works on functions, coroutines, generators and async generators. A generator's span
is the ambient one only while the generator itself runs, never while its consumer does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from vestige.emit import context
from vestige.emit.generators import Opened, recorded_async_generator, recorded_generator
from vestige.emit.span import Span

F = TypeVar("F", bound=Callable[..., Any])


def traced_run(
    name: str, conversation_id: str | None = None, attributes: dict[str, Any] | None = None
) -> Span:
    """A run of the process's default recorder, as a context manager (sync and async)."""
    return context.default().run(name, conversation_id, attributes)


@overload
def trace(function: F, /) -> F: ...


@overload
def trace(
    label: str | None = None,
    /,
    *,
    name: str | None = None,
    type: str = "step",
    capture: bool = True,
) -> Callable[[F], F]: ...


def trace(
    function: Any = None, /, *, name: str | None = None, type: str = "step", capture: bool = True
) -> Any:
    """Record every call of a function as a span.

    `@trace`, `@trace("name")` or `@trace(name=..., type="tool", capture=False)`.
    With `capture`, arguments become the span's input body and the result its output.
    """
    if callable(function):
        return _traced(function, name, type, capture)
    return functools.partial(_traced, name=function or name, type=type, capture=capture)


def _traced(function: Callable[..., Any], name: str | None, type: str, capture: bool) -> Any:
    label = name or getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")

    def opened(args: Any, kwargs: Any) -> Span:
        body = _arguments(function, args, kwargs) if capture else None
        parent = context.SPAN.get()
        if parent is None:
            return context.default().run(label, body=body)
        return parent.child(label, type, body=body)

    def finished(span: Span, result: Any) -> None:
        span.end(body=result if capture else None)

    return recorded(function, opened, finished)


def recorded(
    function: Callable[..., Any],
    opened: Callable[[Any, Any], Span],
    finished: Callable[[Span, Any], None],
    *,
    last_item: bool = False,
) -> Any:
    """A function each call of which opens a span and finishes it with the result. A generator's
    result is what it returns; with `last_item`, or else the last that it yielded."""

    def opening(args: Any, kwargs: Any) -> Opened:
        span = opened(args, kwargs)
        return Opened(span, span.end, functools.partial(finished, span), last_item)

    if inspect.isasyncgenfunction(function):
        return recorded_async_generator(function, opening)
    if inspect.isgeneratorfunction(function):
        return recorded_generator(function, opening)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def recorded_coroutine(*args: Any, **kwargs: Any) -> Any:
            with opened(args, kwargs) as span:
                result = await function(*args, **kwargs)
                finished(span, result)
                return result

        return recorded_coroutine

    @functools.wraps(function)
    def recorded_call(*args: Any, **kwargs: Any) -> Any:
        with opened(args, kwargs) as span:
            result = function(*args, **kwargs)
            finished(span, result)
            return result

    return recorded_call


def _arguments(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """A call's arguments by name."""
    try:
        named = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {key: value for key, value in named.items() if key not in ("self", "cls")}
