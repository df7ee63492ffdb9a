"""What is ambient: the current span and tool call of this thread or task, the process's recorder.

The only context variables and the one process-wide default; emit/tracing.py, tools.py and the
logging bridge are built on them. Kept apart so that spans themselves can use them too.
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
    """Back to what was before. A span may be left in another context than it was entered in
    (an async generator finalised by the loop): then there is nothing to restore."""
    try:
        token.var.reset(token)
    except ValueError:
        pass


def leave_last(tokens: list[Token[Any]]) -> None:
    """Back to what was before this thread or task last entered what these are of: it may have been
    entered again inside, or by others, and they leave in any order. Never entered: nothing."""
    try:
        last = tokens[-1]
        last.var.reset(last)
    except (IndexError, ValueError):
        _leave_own(tokens)
    else:  # nearly always
        tokens.remove(last)


def _leave_own(tokens: list[Token[Any]]) -> None:
    for token in reversed(tokens.copy()):
        try:
            token.var.reset(token)
        except ValueError:
            continue  # another one's
        tokens.remove(token)
        return


class Speaker(Protocol):
    """What a line needs of a recorder."""

    def logger(self, component: str) -> Logger: ...


class Opener(Speaker, Protocol):
    """What ambient code needs of a recorder."""

    def run(
        self,
        name: str,
        conversation_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
    ) -> Span: ...


_make_default: Callable[[], Opener]


def use_default(make: Callable[[], Opener]) -> None:
    """Tell where runs come from when there is no ambient span (process_recorder.py does)."""
    global _make_default
    _make_default = make


def default() -> Opener:
    """The process's recorder, made when first needed."""
    return _make_default()
