"""Logger: a component's handle for saying things and for opening spans.

    log = recorder.logger("billing-agent")
    log.info("invoice sent", invoice_id="i-17", amount=120)
    log.error("card refused", error=exc)
    with log.span("charge", type="tool") as span: ...

The component is stamped from the handle; no attribute can change it. A logger that
is bound to a span (`span.log`) speaks inside it; an unbound one speaks inside the
ambient span, and outside any span for the process's own run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vestige.emit import context, span
from vestige.emit.emitter import LEVEL_RANK, Emitter
from vestige.emit.exceptions import error_attributes
from vestige.record.coercion import clean_message, clean_name
from vestige.record.types import OWN_COMPONENT, VERSION, Log

_DEBUG, _INFO, _WARN, _ERROR = (LEVEL_RANK[level] for level in ("debug", "info", "warn", "error"))


class Logger:
    """Says things as one component. Made by `Recorder.logger`, `Span.log` and `Logger.child`."""

    __slots__ = ("_attributes", "_emitter", "_span", "component")

    def __init__(
        self,
        emitter: Emitter,
        component: str,
        bound_to: span.Span | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._emitter = emitter
        self.component = component
        self._span = bound_to
        self._attributes = attributes

    def debug(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _DEBUG:
            self._say("debug", message, attributes)

    def info(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _INFO:
            self._say("info", message, attributes)

    def warn(self, message: str, /, **attributes: Any) -> None:
        if self._emitter.level_rank <= _WARN:
            self._say("warn", message, attributes)

    warning = warn

    def error(
        self, message: str, /, *, error: BaseException | None = None, **attributes: Any
    ) -> None:
        """`error` is the exception: its type, message, stack, causes and group are kept."""
        if error is not None:
            attributes |= error_attributes(error)
        self._say("error", message, attributes)

    def child(self, bound_to: span.Span | None = None, /, **attributes: Any) -> Logger:
        """The same component, with attributes that every line and span of it will carry."""
        merged = {**(self._attributes or {}), **attributes}
        return Logger(self._emitter, self.component, bound_to or self._span, merged)

    def span(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> span.Span:
        """Open a span: inside the bound span, else the ambient one, else the process's run."""
        emitter = self._emitter
        if self._attributes:
            attributes = {**self._attributes, **emitter.attributes(attributes)}
        parent = self._span or context.SPAN.get()
        if parent is None:
            run_id, parent_id = emitter.process_run_id, emitter.process_span_id
        elif parent.muted:
            return parent.child(name, type)
        else:
            run_id, parent_id = parent.run_id, parent.id
        return span.Span(emitter, run_id, parent_id, self.component, name, type, attributes, body)

    def surface(
        self,
        text: str,
        span_types: Iterable[str] | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> None:
        """Register this component's debug surface: see emit/debug_surface.py. Said once per process."""
        from vestige.emit.debug_surface import ATTRIBUTE, is_news, surface_text  # most have none

        emitter = self._emitter
        try:
            said = surface_text(self.component, text, span_types, queries)
        except Exception as error:  # noqa: BLE001  # the program goes on
            reason = str(error) if type(error) is ValueError else type(error).__name__
            emitter.fault(f"surface refused: {reason}")
            return
        if not is_news(emitter, said):
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
                {ATTRIBUTE: said},
            )
        )

    def say(
        self, level: str, message: str, attributes: Mapping[str, Any], body: Any = None
    ) -> None:
        """A line of any level, with attributes under any name and perhaps a body: for bridges."""
        if self._emitter.level_rank <= LEVEL_RANK.get(level, _ERROR):
            self._say(level, message, attributes, body)

    def _say(
        self, level: str, message: str, attributes: Mapping[str, Any], body: Any = None
    ) -> None:
        emitter = self._emitter
        if self._attributes:
            attributes = {**self._attributes, **attributes}
        within = self._span or context.SPAN.get()
        if within is None:
            run_id, span_id = emitter.process_run_id, emitter.process_span_id
        elif within.muted and LEVEL_RANK.get(level, _ERROR) < _WARN:
            return
        else:
            run_id, span_id = within.run_id, within.id
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
