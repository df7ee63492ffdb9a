"""Record the calls of a framework's methods, for frameworks without callbacks.

    record_calls(Tool, "__call__", describe)

`describe(self, args, kwargs)` returns the `Call` to record, or None. Functions, coroutines and
generators are supported; the method's signature, results and exceptions do not change.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vestige.emit.generator_spans import Opened, recorded_async_generator, recorded_generator
from vestige.emit.no_op import NULL_SPAN
from vestige.emit.replayed_tools import (
    TEXT_RESULT,
    Restore,
    reads_like_json,
    replayed,
)
from vestige.emit.span import Span
from vestige.integrations.failure_counts import record_fault
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.tool_replay import is_replaying


class Call(NamedTuple):
    """The span of a call."""

    name: str
    type: str = "step"
    body: Any = None
    call_id: str | None = None
    attributes: Mapping[str, Any] | None = None


class Outcome(NamedTuple):
    """The output of a call, and the failure that it reports without raising."""

    body: Any = None
    error: str | None = None


Describe = Callable[[Any, tuple[Any, ...], dict[str, Any]], "Call | None"]
ReadResult = Callable[[Any], Outcome]


def read_plain(result: Any) -> Outcome:
    return Outcome(to_plain(result))


def record_calls(
    tracker: SpanTracker,
    owner: Any,
    name: str,
    describe: Describe,
    read_result: ReadResult = read_plain,
    restore: Restore | None = None,
) -> None:
    """Replace `owner.name` by a method that records its calls. A missing one is left out.

    `restore` makes its result from a recorded one, if tools are replayed. None: it always runs.
    """
    original = vars(owner).get(name)
    if original is None or getattr(original, "_vestige", False):
        return
    if restore is not None and is_replaying():
        original = replayed(original, restore)
    wrapped = _wrap(tracker, original, describe, read_result)
    wrapped._vestige = True
    setattr(owner, name, wrapped)


def _wrap(tracker: SpanTracker, original: Any, describe: Describe, read_result: ReadResult) -> Any:
    def open_span(args: Any, kwargs: Any) -> Span:
        try:
            call = describe(args[0], args[1:], kwargs)
            return NULL_SPAN if call is None else tracker.open(*call) or NULL_SPAN
        except Exception as error:  # noqa: BLE001  # the program continues
            record_fault(f"integration {tracker.framework}", error)
            return NULL_SPAN

    def finish(span: Span, result: Any) -> None:
        if span.muted:
            return
        try:
            outcome = read_result(result)
        except Exception as error:  # noqa: BLE001  # a result of any kind
            record_fault(f"integration {tracker.framework}", error)
            outcome = Outcome()
        status = None if outcome.error is None else "error"
        is_text = span.type == "tool" and reads_like_json(outcome.body)
        attributes = {TEXT_RESULT: True} if is_text else None
        span.end(outcome.error, attributes, outcome.body, status=status)  # type: ignore[arg-type]

    def open_generator(args: Any, kwargs: Any) -> Opened:
        span = open_span(args, kwargs)
        return Opened(span, span.end, functools.partial(finish, span), keep_last=True)

    if inspect.isasyncgenfunction(original):
        return recorded_async_generator(original, open_generator)
    if inspect.isgeneratorfunction(original):
        return recorded_generator(original, open_generator)
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def recorded_coroutine(*args: Any, **kwargs: Any) -> Any:
            with open_span(args, kwargs) as span:
                result = await original(*args, **kwargs)
                finish(span, result)
                return result

        return recorded_coroutine

    @functools.wraps(original)
    def recorded_call(*args: Any, **kwargs: Any) -> Any:
        with open_span(args, kwargs) as span:
            result = original(*args, **kwargs)
            finish(span, result)
            return result

    return recorded_call
