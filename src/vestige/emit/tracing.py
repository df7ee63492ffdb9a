"""`@trace` and `traced_run`, for code that has no span to pass down.

    @vestige.trace
    def plan(goal): ...                  # a step of the ambient run, or a separate run

    with vestige.traced_run("nightly"):  # a run of the process's default recorder
        plan("ship it")

`trace` works on functions, coroutines, generators and async generators. The span of a generator
is the ambient one only while the generator itself runs (emit/generator_spans.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from vestige.emit import context
from vestige.emit.generator_spans import Opened, recorded_async_generator, recorded_generator
from vestige.emit.span import Span

F = TypeVar("F", bound=Callable[..., Any])


def traced_run(
    name: str, conversation_id: str | None = None, attributes: dict[str, Any] | None = None
) -> Span:
    """Open a run of the default recorder. It is a context manager, sync and async."""
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

    def open_span(args: Any, kwargs: Any) -> Span:
        body = _arguments(function, args, kwargs) if capture else None
        parent = context.current()
        if parent is None:
            return context.default().root_span(label, type, body=body)
        return parent.child(label, type, body=body)

    def finish(span: Span, result: Any) -> None:
        span.end(body=result if capture else None)

    return recorded(function, open_span, finish)


def recorded(
    function: Callable[..., Any],
    open_span: Callable[[Any, Any], Span],
    finish: Callable[[Span, Any], None],
    *,
    last_item: bool = False,
) -> Any:
    """Wrap a function so that each call opens a span and finishes it with the result.

    The result of a generator is its return value. With `last_item`, the last item replaces None.
    """

    def open_generator(args: Any, kwargs: Any) -> Opened:
        span = open_span(args, kwargs)
        return Opened(span, span.end, functools.partial(finish, span), last_item)

    if inspect.isasyncgenfunction(function):
        return recorded_async_generator(function, open_generator)
    if inspect.isgeneratorfunction(function):
        return recorded_generator(function, open_generator)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def recorded_coroutine(*args: Any, **kwargs: Any) -> Any:
            with open_span(args, kwargs) as span:
                result = await function(*args, **kwargs)
                finish(span, result)
                return result

        return recorded_coroutine

    @functools.wraps(function)
    def recorded_call(*args: Any, **kwargs: Any) -> Any:
        with open_span(args, kwargs) as span:
            result = function(*args, **kwargs)
            finish(span, result)
            return result

    return recorded_call


def _arguments(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        named = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {key: value for key, value in named.items() if key not in ("self", "cls")}
