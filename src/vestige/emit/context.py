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
    from vestige.emit.span import Span
    from vestige.emit.tools import ToolCall

SPAN: ContextVar[Span | None] = ContextVar("vestige_span", default=None)
CALL: ContextVar[ToolCall | None] = ContextVar("vestige_tool_call", default=None)


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


_get_default: Callable[[], RunSource]


def use_default(get_default: Callable[[], RunSource]) -> None:
    """Set the function that returns the recorder of runs without an ambient span."""
    global _get_default
    _get_default = get_default


def default() -> RunSource:
    """Return the process's recorder, created when first needed (process_recorder.py)."""
    return _get_default()
