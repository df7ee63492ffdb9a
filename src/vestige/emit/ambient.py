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
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, overload

from vestige.emit import current
from vestige.emit.span import Span

F = TypeVar("F", bound=Callable[..., Any])
End = Callable[..., None]
"""As `Span.end`."""
Opened = Callable[[Any, Any], tuple[Span, End]]
"""A call's arguments -> the span to run it in, and what ends that."""


def traced_run(
    name: str, conversation_id: str | None = None, attributes: dict[str, Any] | None = None
) -> Span:
    """A run of the process's default recorder, as a context manager (sync and async)."""
    return current.default().run(name, conversation_id, attributes)


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
        parent = current.SPAN.get()
        if parent is None:
            return current.default().run(label, body=body)
        return parent.child(label, type, body=body)

    def opened_with_end(args: Any, kwargs: Any) -> tuple[Span, End]:
        span = opened(args, kwargs)
        return span, span.end

    def finished(span: Span, result: Any) -> None:
        span.end(body=result if capture else None)

    if inspect.isasyncgenfunction(function):
        return traced_async_generator(function, opened_with_end)
    if inspect.isgeneratorfunction(function):
        return traced_generator(function, opened_with_end)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
            with opened(args, kwargs) as span:
                result = await function(*args, **kwargs)
                finished(span, result)
                return result

        return traced_coroutine

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with opened(args, kwargs) as span:
            result = function(*args, **kwargs)
            finished(span, result)
            return result

    return traced


def _arguments(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """A call's arguments by name."""
    try:
        named = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {key: value for key, value in named.items() if key not in ("self", "cls")}


def traced_generator(function: Callable[..., Generator[Any, Any, Any]], opened: Opened) -> Any:
    """A generator function whose generators run inside a span, and end it in whatever way."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span, end = opened(args, kwargs)
        generator = function(*args, **kwargs)
        step: Callable[[Any], Any] = generator.send
        sent: Any = None
        try:
            while True:
                token = current.SPAN.set(span)
                try:
                    item = step(sent)
                finally:
                    current.leave(token)
                try:
                    sent = yield item
                    step = generator.send
                except GeneratorExit:
                    token = current.SPAN.set(span)
                    try:
                        generator.close()
                    finally:
                        current.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # what the consumer throws in
                    step, sent = generator.throw, thrown
        except StopIteration as stop:
            end()
            return stop.value
        except GeneratorExit:
            end(status="cancelled")  # the consumer had enough: no error of the generator's
            raise
        except BaseException as error:
            end(error)
            raise

    return traced


def traced_async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], opened: Opened
) -> Any:
    """The same for an async generator function."""

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span, end = opened(args, kwargs)
        generator = function(*args, **kwargs)
        step: Callable[[Any], Any] = generator.asend
        sent: Any = None
        try:
            while True:
                token = current.SPAN.set(span)
                try:
                    item = await step(sent)
                finally:
                    current.leave(token)
                try:
                    sent = yield item
                    step = generator.asend
                except GeneratorExit:
                    token = current.SPAN.set(span)
                    try:
                        await generator.aclose()
                    finally:
                        current.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # what the consumer throws in
                    step, sent = generator.athrow, thrown
        except StopAsyncIteration:
            end()
        except GeneratorExit:
            end(status="cancelled")
            raise
        except BaseException as error:
            end(error)
            raise

    return traced
