"""Spans and loggers that record nothing, for a disabled recorder and for unsampled runs.

`NULL_SPAN` is falsy, so `if vestige.current_span():` is true inside a span only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from vestige.emit import context
from vestige.emit.logger import Logger
from vestige.emit.span import Span

if TYPE_CHECKING:
    from typing import Self


class NullLogger(Logger):
    """A logger that records nothing, at almost no cost."""

    __slots__ = ()

    def __init__(self) -> None:
        self.component = "disabled"

    def debug(self, message: str, /, **attributes: Any) -> None:
        pass

    info = warn = warning = debug

    def error(
        self, message: str, /, *, error: BaseException | None = None, **attributes: Any
    ) -> None:
        pass

    def record(
        self, level: str, message: str, attributes: Mapping[str, Any], body: Any = None
    ) -> None:
        pass

    def surface(
        self,
        text: str,
        span_types: Iterable[str] | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> None:
        pass

    def child(self, bound_to: Span | None = None, /, **attributes: Any) -> Logger:
        return self

    def span(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Span:
        return NULL_SPAN


class NullSpan(Span):
    """A span that records nothing.

    Inside an unsampled run its log is that of the root, so warnings and errors are recorded.
    """

    __slots__ = ("_log",)
    muted = True

    def __init__(self, log: Logger, run_id: str, span_id: str) -> None:
        self._log = log
        self._ended = False
        self.id = span_id
        self.run_id = run_id
        self.parent_id = None
        self.component = log.component
        self.name = self.type = ""

    @property
    def log(self) -> Logger:
        return self._log

    def child(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Span:
        return self

    span = child

    def set_attributes(self, attributes: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        pass

    def add_link(
        self, span_id: str | Span, run_id: str | None = None, reason: str | None = None
    ) -> None:
        pass

    def segments(self, parts: Iterable[Any], body: str | bytes | None = None) -> None:
        pass

    def end(
        self,
        error: BaseException | None = None,
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        status: str | None = None,
    ) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __bool__(self) -> bool:
        return bool(self.run_id)


class UnsampledRun(Span):
    """The root of an unsampled run: recorded itself, but inside it only warnings and errors."""

    __slots__ = ()
    muted = True

    def child(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Span:
        return NullSpan(self.log, self.run_id, self.id)

    span = child


NULL_LOGGER = NullLogger()
NULL_SPAN = NullSpan(NULL_LOGGER, "", "")


def current_span() -> Span:
    """Return the ambient span, or a falsy no-op span outside any."""
    return context.SPAN.get() or NULL_SPAN
