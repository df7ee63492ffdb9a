"""Generators inside a span: ambient while the generator itself runs, never while its consumer does.

    recorded_generator(function, opened)            # gives a function like it

`opened(args, kwargs)` opens the span of one generator and says how it ends; then whichever way
the generator ends, by itself, by an error or by a consumer that had enough, the span does too.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, NamedTuple, Protocol

from vestige.emit import context
from vestige.emit.span import Span


class End(Protocol):
    """How a span is ended that did not just finish."""

    def __call__(
        self, error: BaseException | None = None, *, status: str | None = None
    ) -> None: ...


class Opened(NamedTuple):
    """One generator's span."""

    span: Span
    end: End
    finish: Callable[[Any], None]
    """It came to its end: with what it returned, or else with the last that it yielded."""
    keep_last: bool = False
    """Whether the last item is kept for that; it may be large."""


Opening = Callable[[Any, Any], Opened]


def recorded_generator(function: Callable[..., Generator[Any, Any, Any]], opening: Opening) -> Any:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span, end, finish, keep_last = opening(args, kwargs)
        sent: Any = None
        last: Any = None
        try:
            generator = function(*args, **kwargs)  # wrong arguments are an end of the span, too
            step: Callable[[Any], Any] = generator.send
            while True:
                token = context.SPAN.set(span)
                try:
                    item = step(sent)
                finally:
                    context.leave(token)
                if keep_last:
                    last = item
                try:
                    sent = yield item
                    step = generator.send
                except GeneratorExit:
                    token = context.SPAN.set(span)
                    try:
                        generator.close()
                    finally:
                        context.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # what the consumer throws in
                    step, sent = generator.throw, thrown
        except StopIteration as stop:
            finish(last if stop.value is None else stop.value)
            return stop.value
        except GeneratorExit:
            end(status="cancelled")  # the consumer had enough: no error of the generator's
            raise
        except BaseException as error:
            end(error)
            raise

    return recorded


def recorded_async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], opening: Opening
) -> Any:
    @functools.wraps(function)
    async def recorded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span, end, finish, keep_last = opening(args, kwargs)
        sent: Any = None
        last: Any = None
        try:
            generator = function(*args, **kwargs)  # wrong arguments are an end of the span, too
            step: Callable[[Any], Any] = generator.asend
            while True:
                token = context.SPAN.set(span)
                try:
                    item = await step(sent)
                finally:
                    context.leave(token)
                if keep_last:
                    last = item
                try:
                    sent = yield item
                    step = generator.asend
                except GeneratorExit:
                    token = context.SPAN.set(span)
                    try:
                        await generator.aclose()
                    finally:
                        context.leave(token)
                    raise
                except BaseException as thrown:  # noqa: BLE001  # what the consumer throws in
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
