"""Ambient state: the current span and tool call of this thread or task, and the default recorder.

emit/tracing.py, emit/tools.py and the logging capture use these context variables. They are in a
module of their own because spans import it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vestige.emit.logger import Logger
    from vestige.emit.pending_run import PendingRun
    from vestige.emit.span import Span
    from vestige.emit.tools import ToolCall

SPAN: ContextVar[Span | None] = ContextVar("vestige_span", default=None)
PENDING: ContextVar[PendingRun | None] = ContextVar("vestige_pending_run", default=None)
"""The run of a request or task, which opens when something inside is recorded."""
CALL: ContextVar[ToolCall | None] = ContextVar("vestige_tool_call", default=None)


def current() -> Span | None:
    """Return the innermost ambient span that is open, for a span that is about to be recorded.

    A span that ended in a different context than it was entered in is still ambient here: its token
    has the span before it. One without a token was inherited by a task that outlives it.
    """
    span = SPAN.get()
    while span is not None and span.ended and span._tokens:
        before = span._tokens[-1].old_value
        span = None if before is Token.MISSING else before
    if span is None and (pending := PENDING.get()) is not None:
        return pending.open()
    return span


def enter(span: Span) -> None:
    """Make `span` the ambient span, for code that calls `leave_span` in any order and context."""
    outer = current()
    if outer is not SPAN.get() and SPAN.get() is not None:
        SPAN.set(outer)  # Without this, the tokens of ended spans would form an endless chain.
    span._tokens.append(SPAN.set(span))


def leave_span(span: Span) -> None:
    """Undo `enter`. The token of a span that is not the ambient one here stays, for `current`."""
    if SPAN.get() is span:
        tokens = span._tokens
        before = tokens[-1].old_value if tokens else None
        leave_last(tokens)
        if SPAN.get() is span:
            SPAN.set(None if before is Token.MISSING else before)


def leave(token: Token[Any]) -> None:
    """Restore the value before `token`.

    A span may be left in a different context than it was entered in (an async generator finalised
    by the loop). Then there is nothing to restore.
    """
    try:
        token.var.reset(token)
    except ValueError:
        pass


def leave_last(tokens: list[Token[Any]]) -> None:
    """Restore the value before this thread or task last entered the object that has `tokens`.

    The object may be entered again inside, or by other threads and tasks, which leave in any order.
    """
    try:
        last = tokens[-1]
        last.var.reset(last)
    except (IndexError, ValueError):
        _leave_in_this_context(tokens)
    else:  # the common case
        tokens.remove(last)


def _leave_in_this_context(tokens: list[Token[Any]]) -> None:
    for token in reversed(tokens.copy()):
        try:
            token.var.reset(token)
        except ValueError:
            continue  # It was entered in a different context.
        tokens.remove(token)
        return


class LoggerSource(Protocol):
    """The part of a recorder that log capture needs."""

    def logger(self, component: str) -> Logger: ...


class RunSource(LoggerSource, Protocol):
    """The part of a recorder that ambient code needs."""

    def run(
        self,
        name: str,
        conversation_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
    ) -> Span: ...

    def root_span(self, name: str, type: str = "step", *, body: Any = None) -> Span: ...


_get_default: Callable[[], RunSource]


def use_default(get_default: Callable[[], RunSource]) -> None:
    """Set the function that returns the recorder of runs without an ambient span."""
    global _get_default
    _get_default = get_default


def default() -> RunSource:
    """Return the process's recorder, created when first needed (process_recorder.py)."""
    return _get_default()
