"""Wrap generator functions so that each generator has a span.

    recorded_generator(function, open_span)

The span is the ambient one while the generator itself runs, never while its consumer does. A span
that the generator has open across a `yield` is ambient again when it goes on. The span ends with
the generator: at its end, by an error, or when the consumer closes it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, NamedTuple, Protocol

from vestige.emit import context
from vestige.emit.span import Span


class End(Protocol):
    """End the span of a generator that failed or was closed."""

    def __call__(
        self, error: BaseException | None = None, *, status: str | None = None
    ) -> None: ...


class Opened(NamedTuple):
    """The span of one generator, and the functions that end it."""

    span: Span
    end: End
    finish: Callable[[Any], None]
    """End the span with the generator's return value, or with the last item if that is None."""
    keep_last: bool = False
    """Keep the last item for `finish`. It may be large."""


OpenSpan = Callable[[Any, Any], Opened]


def recorded_generator(
    function: Callable[..., Generator[Any, Any, Any]], open_span: OpenSpan
) -> Any:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span, end, finish, keep_last = open_span(args, kwargs)
        sent: Any = None
        last: Any = None
        inner: Span | None = span
        try:
            generator = function(*args, **kwargs)  # Wrong arguments end the span, too.
            step: Callable[[Any], Any] = generator.send
            while True:
                token = context.SPAN.set(_find_open(inner, span))
                try:
                    item = step(sent)
                finally:
                    inner = context.SPAN.get()
                    context.leave(token)
                if keep_last:
                    last = item
                try:
                    sent = yield item
                    step = generator.send
                except GeneratorExit:
                    token = context.SPAN.set(_find_open(inner, span))
                    try:
                        generator.close()
                    finally:
                        context.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # thrown by the consumer
                    step, sent = generator.throw, thrown
        except StopIteration as stop:
            finish(last if stop.value is None else stop.value)
            return stop.value
        except GeneratorExit:
            end(status="cancelled")  # The consumer closed the generator, which is not an error.
            raise
        except BaseException as error:
            end(error)
            raise

    return recorded


def recorded_async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], open_span: OpenSpan
) -> Any:
    @functools.wraps(function)
    async def recorded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span, end, finish, keep_last = open_span(args, kwargs)
        sent: Any = None
        last: Any = None
        inner: Span | None = span
        try:
            generator = function(*args, **kwargs)  # Wrong arguments end the span, too.
            step: Callable[[Any], Any] = generator.asend
            while True:
                token = context.SPAN.set(_find_open(inner, span))
                try:
                    item = await step(sent)
                finally:
                    inner = context.SPAN.get()
                    context.leave(token)
                if keep_last:
                    last = item
                try:
                    sent = yield item
                    step = generator.asend
                except GeneratorExit:
                    token = context.SPAN.set(_find_open(inner, span))
                    try:
                        await generator.aclose()
                    finally:
                        context.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # thrown by the consumer
                    step, sent = generator.athrow, thrown
        except StopAsyncIteration:
            finish(last)
        except GeneratorExit:
            end(status="cancelled")
            raise
        except BaseException as error:
            end(error)
            raise

    return recorded


def _find_open(inner: Span | None, span: Span) -> Span:
    """Return the ambient span of the generator's last step, or its own if that has ended."""
    return span if inner is None or inner.ended else inner
