"""`trace` and `traced_run`: a run around a function or a block.

    @trace                                   with traced_run("nightly", max_llm_calls=50):
    def plan(goal): ...                          plan("ship it")

Inside an active run both join it: they are a step of it, with limits of their own if given.
Functions, methods, coroutines, generators and async generators; a generator's run lasts as long
as the generator, and is active only while the generator itself runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from vestige.agentdbg import guardrails, run_lifecycle
from vestige.agentdbg.guardrails import Guardrails
from vestige.agentdbg.live_run import LiveRun
from vestige.agentdbg.settings import read_settings, warn_once
from vestige.emit import context
from vestige.emit.generator_spans import Opened, recorded_async_generator, recorded_generator
from vestige.emit.span import Span

P = ParamSpec("P")
R = TypeVar("R")


class TraceOptions(msgspec.Struct, frozen=True):
    """The arguments of a `trace` or `traced_run`."""

    name: str | None
    limits: dict[str, Any]
    """Only those that were given."""


class Scope:
    """A passage through a traced function or block: a run, or a step of the active one."""

    def __init__(self, options: TraceOptions, function: Callable[..., Any] | None) -> None:
        self._joined: LiveRun | None = run_lifecycle.active()
        self._limits: Guardrails | None = None
        if self._joined is None:
            found = read_settings()
            limits = _over(found.guardrails, options.limits)
            self.span = run_lifecycle.open_run(
                run_lifecycle.run_name(options.name, function), found, limits
            )
            return
        outer = context.SPAN.get()
        assert outer is not None
        called = options.name or getattr(function, "__qualname__", None) or "traced_run"
        self.span = outer.child(str(called).replace("<locals>.", ""))
        if options.limits:
            self._limits = _over(Guardrails(), options.limits)
            self._joined.add_limits(self._limits)

    def end(self, error: BaseException | None = None, *, status: str | None = None) -> None:
        """Left, perhaps by `error`; `status` only says that a generator was closed early."""
        if self._joined is None:
            run_lifecycle.end_run(self.span, GeneratorExit() if status is not None else error)
            return
        if self._limits is not None:
            self._joined.drop_limits(self._limits)
        self.span.end(error, status=status)


class TracedRun:
    """A context manager, also async, also a decorator. Entered as often as one likes."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._entered: list[tuple[Scope, Token[Span | None]]] = []

    def __enter__(self) -> None:
        scope = Scope(self._options, None)
        self._entered.append((scope, context.SPAN.set(scope.span)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scope, token = self._leave()
        context.leave(token)
        scope.end(error)

    def _leave(self) -> tuple[Scope, Token[Span | None]]:
        """The passage that is left: threads and tasks that share this one leave it in any order."""
        inside, entered = context.SPAN.get(), list(self._entered)
        found = next((one for one in reversed(entered) if one[0].span is inside), entered[-1])
        self._entered.remove(found)
        return found

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        traced: Callable[P, R] = _traced(function, self._options, None)
        return traced


def traced_run(
    name: str | None = None,
    *,
    stop_on_loop: bool | None = None,
    stop_on_loop_min_repetitions: int | None = None,
    max_llm_calls: int | None = None,
    max_tool_calls: int | None = None,
    max_events: int | None = None,
    max_duration_s: float | None = None,
) -> TracedRun:
    """A run around a block of code, or a step of the run that is active."""
    limits = _drop_unset(
        stop_on_loop,
        stop_on_loop_min_repetitions,
        max_llm_calls,
        max_tool_calls,
        max_events,
        max_duration_s,
    )
    return TracedRun(TraceOptions(name, limits))


@overload
def trace(f: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def trace(
    f: str | None = None,
    *,
    name: str | None = None,
    stop_on_loop: bool | None = None,
    stop_on_loop_min_repetitions: int | None = None,
    max_llm_calls: int | None = None,
    max_tool_calls: int | None = None,
    max_events: int | None = None,
    max_duration_s: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def trace(
    f: Any = None,
    *,
    name: str | None = None,
    stop_on_loop: bool | None = None,
    stop_on_loop_min_repetitions: int | None = None,
    max_llm_calls: int | None = None,
    max_tool_calls: int | None = None,
    max_events: int | None = None,
    max_duration_s: float | None = None,
) -> Any:
    """A run around every call of a function: `@trace`, `@trace("name")`, `@trace(name=...)`."""
    limits = _drop_unset(
        stop_on_loop,
        stop_on_loop_min_repetitions,
        max_llm_calls,
        max_tool_calls,
        max_events,
        max_duration_s,
    )
    if callable(f) or isinstance(f, (staticmethod, classmethod)):
        return _traced(f, TraceOptions(name, limits), f)
    options = TraceOptions(f if isinstance(f, str) and f else name, limits)
    return lambda function: _traced(function, options, function)


def has_active_run() -> bool:
    """Check whether a traced run is active here."""
    return run_lifecycle.active() is not None


def _drop_unset(*values: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in zip(Guardrails.__struct_fields__, values, strict=True)
        if value is not None
    }


def _over(base: Guardrails, options: dict[str, Any]) -> Guardrails:
    limits, odd = guardrails.over(base, **options)
    for complaint in odd:
        warn_once(complaint)
    return limits


def _traced(function: Any, options: TraceOptions, named_for: Callable[..., Any] | None) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        inner = function.__func__
        return type(function)(_traced(inner, options, inner if named_for else None))

    def opening(args: Any, kwargs: Any) -> Opened:
        scope = Scope(options, named_for)
        return Opened(scope.span, scope.end, lambda result: scope.end())

    if inspect.isasyncgenfunction(function):
        return recorded_async_generator(function, opening)
    if inspect.isgeneratorfunction(function):
        return recorded_generator(function, opening)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
            with _Entered(options, named_for):
                return await function(*args, **kwargs)

        return traced_coroutine

    @functools.wraps(function, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _Entered(options, named_for):
            return function(*args, **kwargs)

    return traced


class _Entered:
    """A scope that is the ambient one. A class, not a generator: it adds no frames to a stack."""

    __slots__ = ("_scope", "_token")

    def __init__(self, options: TraceOptions, function: Callable[..., Any] | None) -> None:
        self._scope = Scope(options, function)

    def __enter__(self) -> None:
        self._token = context.SPAN.set(self._scope.span)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context.leave(self._token)
        self._scope.end(error)
