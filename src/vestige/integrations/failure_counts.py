"""Count failures of integrations. They never reach the program that is recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from vestige.emit import context

P = ParamSpec("P")


def record_fault(operation: str, error: Exception) -> None:
    """Count a failure of Vestige in the recorder's faults."""
    try:
        emitter = getattr(context.SPAN.get() or context.default(), "_emitter", None)
        if emitter is not None:
            emitter.fault(f"{operation}: {type(error).__name__}")
    except Exception:  # noqa: BLE001  # no recorder to count it
        pass


def guarded(function: Callable[P, Any]) -> Callable[P, Any]:
    """Wrap a callback so that its exceptions are counted and not raised."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # the program continues
            record_fault(function.__qualname__, error)
            return None

    return call
