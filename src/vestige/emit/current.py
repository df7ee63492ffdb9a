"""What is ambient: the current span of this thread or task, and the process's recorder.

The one context variable and the one process-wide default; ambient.py and the logging
bridge are built on them. Kept apart so that spans themselves can use it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vestige.emit.logger import Logger
    from vestige.emit.span import Span

SPAN: ContextVar[Span | None] = ContextVar("vestige_span", default=None)


def leave(token: Token[Span | None]) -> None:
    """Back to the span before. A span may be left in another context than it was entered in
    (an async generator finalised by the loop): then there is nothing to restore."""
    try:
        SPAN.reset(token)
    except ValueError:
        pass


class Opener(Protocol):
    """What ambient code needs of a recorder."""

    def run(
        self,
        name: str,
        conversation_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
    ) -> Span: ...

    def logger(self, component: str) -> Logger: ...


_make_default: Callable[[], Opener]


def use_default(make: Callable[[], Opener]) -> None:
    """Tell where runs come from when there is no ambient span (recorder.py does)."""
    global _make_default
    _make_default = make


def default() -> Opener:
    """The process's recorder, made when first needed."""
    return _make_default()
