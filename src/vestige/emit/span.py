"""Span: one timed piece of work, written when it opens, changes and closes.

    with run.span("search", type="tool", body=arguments) as span:
        span.set_attributes(tool_call_id="call_7")
        result = search(...)
        span.end(body=result)

A span is an explicit value: pass it down, and open children from it. Entering it
as a context manager also makes it the ambient span (emit/tracing.py).

Spans never raise. Use after the end is counted as a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.emit import context, requested_tool_calls
from vestige.emit.emitter import NO_ATTRIBUTES, Emitter
from vestige.emit.exception_attributes import error_attributes, status_of
from vestige.emit.logger import Logger
from vestige.limits import BODY_INLINE_MAX, OPEN_SPANS_TRACKED_MAX
from vestige.record.coercion import clean_name
from vestige.record.types import VERSION, Attributes, Link, SpanClose, SpanOpen, SpanUpdate

if TYPE_CHECKING:
    from typing import Self


class OpeningDetails(NamedTuple):
    """The parts of an opening that a span does not have itself."""

    attributes: Attributes = NO_ATTRIBUTES
    links: list[Link] | None = None
    conversation_id: str | None = None


NO_DETAILS = OpeningDetails()


class Span:
    """Work in progress. Created by `Recorder.run`, `Logger.span` and `Span.child`."""

    __slots__ = (
        "_emitter",
        "_ended",
        "_opened_ns",
        "_tokens",
        "_writer",
        "component",
        "id",
        "name",
        "parent_id",
        "run_id",
        "type",
    )
    muted = False
    """True for spans of a run that was not sampled (emit/no_op.py)."""

    def __init__(
        self,
        emitter: Emitter,
        run_id: str,
        parent_id: str | None,
        component: str,
        name: str,
        type: str,
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
        links: list[Link] | None = None,
        conversation_id: str | None = None,
    ) -> None:
        self._emitter = emitter
        self._writer = writer = emitter.writer
        self._ended = False
        self._tokens: list[Token[Span | None]] = []
        self.id = span_id = emitter.span_id()
        self.run_id = run_id
        self.parent_id = parent_id
        if not (name.__class__ is type.__class__ is component.__class__ is str):
            # Readers reject records with other types.
            component, name, type = map(clean_name, (component, name, type))  # noqa: A001
        self.component = component
        self.name = name
        self.type = type
        flat = NO_ATTRIBUTES if attributes is None else emitter.attributes(attributes)
        if conversation_id is not None:
            emitter.note_conversation(run_id, conversation_id)
            for link in links or ():
                flat = {**emitter.conversation_attributes(link.run_id, run_id), **flat}
        seq = next(emitter.seq)
        info = None
        if body is not None and (body.__class__ is not str or len(body) > BODY_INLINE_MAX):
            body, info = emitter.prepare_body(body, seq)
        emitter.send(
            SpanOpen(
                VERSION,
                writer,
                seq,
                emitter.now_ns(),
                run_id,
                span_id,
                component,
                type,
                name,
                parent_id,
                conversation_id,
                flat,
                links,
                body,
                info,
            )
        )
        if type == "tool":
            requested_tool_calls.note_tool(run_id, name)
        open_spans = emitter.open_spans
        if len(open_spans) < OPEN_SPANS_TRACKED_MAX:
            open_spans[span_id] = self
        self._opened_ns = emitter.monotonic_ns()

    # --- while it is open ---------------------------------------------------------------

    @property
    def log(self) -> Logger:
        """Return a logger whose records belong to this span."""
        return Logger(self._emitter, self.component, self)

    def child(
        self,
        name: str,
        type: str = "step",
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Span:
        """Open a span inside this one."""
        if self._ended:
            self._emitter.fault("child of an ended span")
        return Span(
            self._emitter, self.run_id, self.id, self.component, name, type, attributes, body
        )

    span = child

    def tool(self, name: str, arguments: Any = None, *, tool_call_id: str | None = None) -> Span:
        """Open a span of type `tool` inside this one. End it with the result as its body.

        It is linked to the model call that requested it (emit/tools.py).
        """
        from vestige.emit.tools import open_tool  # it imports Span

        return open_tool(self, name, arguments, tool_call_id)

    def set_attributes(self, attributes: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Add attributes during the work. They are written now, not at the end."""
        if self._may_change("set_attributes"):
            flat = self._emitter.attributes(more)
            if attributes is not None:
                flat = {**self._emitter.attributes(attributes), **flat}
            self._update(flat, None)

    def add_link(
        self, span_id: str | Span, run_id: str | None = None, reason: str | None = None
    ) -> None:
        """Add a causal link to another span. It is written now, in case the end never comes.

        If the other span's run belongs to another conversation, both are recorded as
        `source.conversation_id` and `target.conversation_id`.
        """
        if self._may_change("add_link"):
            if isinstance(span_id, Span):
                run_id, span_id = run_id or span_id.run_id, span_id.id
            link = Link(
                clean_name(span_id),
                None if run_id is None else clean_name(run_id),
                None if reason is None else clean_name(reason),
            )
            self._update(self._emitter.conversation_attributes(link.run_id, self.run_id), [link])

    def segments(self, parts: Iterable[Any], body: str | bytes | None = None) -> None:
        """Record the sources of this span's prompt, as a child of type `prompt.assembly`.

        A part is `(contributor, text)`, or a mapping with `contributor` and any of `kind`, `role`,
        `text`, `length`, `begin`, `end`. Ranges are bytes of this span's body: pass `body` to have
        the texts located in it (record/prompt_segments.py).
        """
        try:
            from vestige.record.prompt_segments import SPAN_TYPE, make_assembly, render_segments

            assembly = make_assembly(parts, body)
            rendered = render_segments(assembly.segments)
            attributes = {
                "segments": len(assembly.segments),
                "prompt_bytes": assembly.size_bytes,
                "ranges": assembly.ranges,
            }
        except Exception as error:  # noqa: BLE001  # iterating `parts` runs the caller's code
            self._emitter.fault(f"segments could not be read: {type(error).__name__}")
            return
        self.child("prompt", SPAN_TYPE, attributes).end(body=rendered)

    # --- the end ------------------------------------------------------------------------

    def end(
        self,
        error: BaseException | None = None,
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        status: str | None = None,
    ) -> None:
        """End the span, as failed if `error` is set. `status` overrides that of the error."""
        emitter = self._emitter
        if self._ended:
            emitter.fault("span ended twice")
            return
        if self._writer != emitter.writer:
            return  # A forked child leaves its parent's `with` block: the parent ends the span.
        duration_ns = emitter.monotonic_ns() - self._opened_ns
        self._ended = True
        flat = NO_ATTRIBUTES if attributes is None else emitter.attributes(attributes)
        if error is not None:
            flat = {**flat, **error_attributes(error)}
        if status is None:
            status = "ok" if error is None else status_of(error)
        elif status.__class__ is not str:
            status = clean_name(status)
        seq = next(emitter.seq)
        info = None
        if body is not None and (body.__class__ is not str or len(body) > BODY_INLINE_MAX):
            body, info = emitter.prepare_body(body, seq)
        emitter.open_spans.pop(self.id, None)  # before `send`, where a guardrail may raise
        emitter.send(
            SpanClose(
                VERSION,
                self._writer,
                seq,
                emitter.now_ns(),
                self.run_id,
                self.id,
                status,
                duration_ns,
                flat,
                body,
                info,
            )
        )

    @property
    def ended(self) -> bool:
        return self._ended

    def reopen(
        self,
        details: OpeningDetails,
        *,
        name: str | None = None,
        type: str | None = None,
        body: Any = None,
    ) -> None:
        """Write the opening again: its journal was deleted, or more is known than at the start.

        A reader merges the openings. `name`, `type` and `body` add what the first one lacked.
        """
        emitter = self._emitter
        if self._ended or self._writer != emitter.writer:
            return
        elapsed_ns = emitter.monotonic_ns() - self._opened_ns
        self.name = self.name if name is None else clean_name(name)
        self.type = self.type if type is None else clean_name(type)
        seq = next(emitter.seq)
        info = None
        if body is not None:
            body, info = emitter.prepare_body(body, seq)
        emitter.send(
            SpanOpen(
                VERSION,
                self._writer,
                seq,
                emitter.now_ns() - elapsed_ns,
                self.run_id,
                self.id,
                self.component,
                self.type,
                self.name,
                self.parent_id,
                details.conversation_id,
                details.attributes,
                details.links,
                body,
                info,
            )
        )

    # --- as a context manager -----------------------------------------------------------

    def __enter__(self) -> Self:
        self._tokens.append(context.SPAN.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context.leave_last(self._tokens)
        if not self._ended:
            self.end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Span {self.id} {self.type} {self.name!r}{' ended' if self._ended else ''}>"

    # --- private --------------------------------------------------------------------------

    def _may_change(self, method: str) -> bool:
        if self._ended:
            self._emitter.fault(f"{method} on an ended span")
        return not self._ended

    def _update(self, attributes: Any, links: list[Link] | None) -> None:
        emitter = self._emitter
        emitter.send(
            SpanUpdate(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                self.run_id,
                self.id,
                attributes,
                links,
            )
        )
