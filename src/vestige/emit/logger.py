"""Logger: a component's handle for log records and spans.

    log = recorder.logger("billing-agent")
    log.info("invoice sent", invoice_id="i-17", amount=120)
    log.error("card refused", error=exc)
    with log.span("charge", type="tool") as span: ...

The component comes from the handle, and no attribute can change it. A logger that is
bound to a span (`span.log`) records inside that span. An unbound logger records inside
the ambient span, or else in the process's run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vestige.emit import context
from vestige.emit.emitter import LEVEL_RANK, Emitter
from vestige.emit.exception_attributes import error_attributes
from vestige.record.coercion import clean_message, clean_name
from vestige.record.types import OWN_COMPONENT, VERSION, Log

if TYPE_CHECKING:
    from vestige.emit.span import Span

_DEBUG, _INFO, _WARN, _ERROR = (LEVEL_RANK[level] for level in ("debug", "info", "warn", "error"))


class Logger:
    """Records as one component. Created by `Recorder.logger`, `Span.log` and `Logger.child`."""

    __slots__ = ("_attributes", "_emitter", "_span", "component")

    def __init__(
        self,
        emitter: Emitter,
        component: str,
        bound_to: Span | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._emitter = emitter
        self.component = component
        self._span = bound_to
        self._attributes = attributes

    def debug(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _DEBUG:
            self._record("debug", message, attributes)

    def info(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _INFO:
            self._record("info", message, attributes)

    def warn(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _WARN:
            self._record("warn", message, attributes)

    warning = warn

    def error(
        self, message: str, /, *, error: BaseException | None = None, **attributes: Any
    ) -> None:
        """Record an error, with the type, message, stack and causes of the exception `error`."""
        if error is not None:
            attributes |= error_attributes(error)
        self._record("error", message, attributes)

    def child(self, bound_to: Span | None = None, /, **attributes: Any) -> Logger:
        """Return a logger of the same component that adds these attributes to all its records."""
        merged = {**(self._attributes or {}), **attributes}
        return Logger(self._emitter, self.component, bound_to or self._span, merged)

    def span(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Span:
        """Open a span inside the bound span, the ambient span, or the process's run."""
        emitter = self._emitter
        if self._attributes:
            attributes = {**self._attributes, **emitter.attributes(attributes)}
        parent = self._span or context.current()
        if parent is None:
            run_id, parent_id = emitter.process_run_id, emitter.process_span_id
        elif parent.muted:
            return parent.child(name, type)
        else:
            run_id, parent_id = parent.run_id, parent.id
        return emitter.open_span(
            emitter, run_id, parent_id, self.component, name, type, attributes, body
        )

    def surface(
        self,
        text: str,
        span_types: Iterable[str] | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> None:
        """Register this component's debugging hints once per process (emit/debugging_hints.py)."""
        from vestige.emit.debugging_hints import ATTRIBUTE, encode_surface, mark_recorded

        emitter = self._emitter
        try:
            encoded = encode_surface(self.component, text, span_types, queries)
        except Exception as error:  # noqa: BLE001  # the program continues
            reason = str(error) if type(error) is ValueError else type(error).__name__
            emitter.fault(f"surface refused: {reason}")
            return
        if not mark_recorded(emitter, encoded):
            return
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                emitter.process_run_id,
                OWN_COMPONENT,
                "debug",
                f"debug surface of {clean_name(self.component)}",
                emitter.process_span_id,
                {ATTRIBUTE: encoded},
            )
        )

    def record(
        self, level: str, message: str, attributes: Mapping[str, Any], body: Any = None
    ) -> None:
        """Record a line of any level, with attributes of any name and an optional body."""
        if self._emitter.level_rank <= LEVEL_RANK.get(level, _ERROR):
            self._record(level, message, attributes, body)

    def _record(
        self, level: str, message: str, attributes: Mapping[str, Any], body: Any = None
    ) -> None:
        emitter = self._emitter
        if self._attributes:
            attributes = {**self._attributes, **attributes}
        parent = self._span or context.SPAN.get()
        if parent is None and (pending := context.PENDING.get()) is not None:
            parent = pending.span
        if parent is None:
            run_id, span_id = emitter.process_run_id, emitter.process_span_id
        elif parent.muted and LEVEL_RANK.get(level, _ERROR) < _WARN:
            return
        else:
            run_id, span_id = parent.run_id, parent.id
        seq = next(emitter.seq)
        info = None
        if body is not None:
            body, info = emitter.prepare_body(body, seq)
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                seq,
                emitter.now_ns(),
                run_id,
                clean_name(self.component),
                level,
                clean_message(message),
                span_id,
                emitter.attributes(attributes),
                body,
                info,
            )
        )
