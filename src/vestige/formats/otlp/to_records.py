"""A span as records: its opening, its events as lines, its close.

The one hard fact: the records of a span depend on that span alone (and on whether it is the run),
so they are the same whichever file or request brings it, and however often.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from vestige.formats.otlp import own_spans
from vestige.formats.otlp.any_value import Object, text_of
from vestige.formats.otlp.constants import (
    FORMAT,
    MADE,
    SEQ,
    TRACE_ID,
    carrier_of_trace,
    own_run_of,
    rank_of,
    run_of,
)
from vestige.formats.otlp.log_records import level_of
from vestige.formats.otlp.parse_span import Event, OtelSpan
from vestige.formats.otlp.root_span import Root
from vestige.formats.otlp.span_content import Content, content_of
from vestige.formats.otlp.span_types import (
    RUN,
    TOOL,
    component_of,
    conversation_of,
    is_log,
    named,
    type_of,
)
from vestige.record.coercion import clean_attributes, clean_message, clean_name
from vestige.record.external_seq import STAND_IN, line_seq, seq_of
from vestige.record.types import VERSION, Attributes, KnownRecord, Link, Log, SpanClose, SpanOpen

_EXCEPTION: Final = "exception"
_STATUSES: Final = {
    "CancelledError": "cancelled",
    "Cancelled": "cancelled",
    "KeyboardInterrupt": "cancelled",
    "TimeoutError": "timeout",
    "APITimeoutError": "timeout",
    "timeout": "timeout",
}
_LOGGED: Final = frozenset(("logfire.span_type", "logfire.level_num", "logfire.msg"))
_RESOURCE_SKIPPED: Final = ("telemetry.sdk.",)
"""Says which library sent it, of every run the same."""


def is_own(span: OtelSpan) -> bool:
    return own_spans.is_number(span.attributes.get(SEQ))


def run_of_span(span: OtelSpan) -> str:
    return own_run_of(span.trace_id) if is_own(span) else run_of(span.trace_id)


def records_of_span(span: OtelSpan, root: Root | None) -> Iterator[KnownRecord]:
    if is_own(span):
        yield from own_spans.records_of(span)
    elif is_log(span):
        yield _logged(span)
    else:
        yield from _Mapped(span, root).records()


def made_run(trace_id: str, root: Root) -> Iterator[KnownRecord]:
    """A run that is no span of its trace: it stands in for the first one, and grows with the trace."""
    top, run_id, writer = root.top, run_of(trace_id), carrier_of_trace(trace_id)
    yield SpanOpen(
        VERSION,
        writer,
        seq_of(STAND_IN, 1),
        top.start_ns,
        run_id,
        root.id,
        clean_name(top.component),
        RUN,
        clean_name(top.name or FORMAT),
        None,
        None if root.conversation is None else clean_name(root.conversation),
        clean_attributes({TRACE_ID: trace_id, MADE: True} | _resource(top.resource)),
    )
    yield SpanClose(
        VERSION,
        writer,
        seq_of(STAND_IN, 2),
        top.end_ns,
        run_id,
        root.id,
        "error" if top.failed else "ok",
        top.end_ns - top.start_ns,
    )


def _logged(span: OtelSpan) -> Log:
    """A line of the span that it was logged in. Its span's id is what it is known by."""
    told = {key: value for key, value in span.attributes.items() if key not in _LOGGED}
    for event in span.events:
        if event.name == _EXCEPTION:
            told |= _error(event.attributes)
    severity = span.attributes.get("logfire.level_num")
    message = text_of(span.attributes.get("logfire.msg")) or span.name
    return Log(
        VERSION,
        carrier_of_trace(span.trace_id),
        line_seq(sha256(span.id.encode()).digest()),
        span.start_ns,
        run_of(span.trace_id),
        clean_name(component_of(span.resource, span.scope, FORMAT)),
        level_of(severity if isinstance(severity, int) else 9),
        clean_message(message),
        span.parent_id,
        _kept(told),
    )


def _resource(resource: Object) -> Object:
    return {
        f"resource.{key}": value
        for key, value in resource.items()
        if not key.startswith(_RESOURCE_SKIPPED)
    }


class _Mapped:
    """One span of somebody else's."""

    def __init__(self, span: OtelSpan, root: Root | None) -> None:
        self._span = span
        self._root = root
        self._run_id = run_of(span.trace_id)
        self._is_run = root is not None and root.id == span.id
        self._type = RUN if self._is_run else type_of(span)
        self._component = clean_name(component_of(span.resource, span.scope, FORMAT))
        self._writer = carrier_of_trace(span.trace_id)
        self._seq = seq_of(rank_of(span.duration_ns, self._is_run), 0)

    def records(self) -> Iterator[KnownRecord]:
        span = self._span
        ours, used = named(span.attributes)
        model = ours.get("model")
        content = content_of(span.attributes, span.events, type_of(span), model)
        if content.model is not None:
            ours["model"] = content.model
        failure = self._failure(content)
        told = {
            key: value
            for key, value in span.attributes.items()
            if key not in used and key not in content.used
        }
        yield self._open(ours | told, content)
        for place, event in enumerate(span.events):
            if place not in content.events:
                yield self._line(event)
        self._seq += 1
        status, error = failure
        yield SpanClose(
            VERSION,
            self._writer,
            self._seq,
            span.end_ns,
            self._run_id,
            span.id,
            status,
            span.duration_ns,
            error,
            content.output,
        )

    def _open(self, told: Object, content: Content) -> SpanOpen:
        span = self._span
        if self._type == TOOL:
            name = span.attributes.get("traceloop.entity.name")
            told.setdefault("tool_name", name if isinstance(name, str) else span.name)
        told |= self._aside()
        conversation = conversation_of(span)
        if self._is_run and self._root is not None:
            conversation = self._root.conversation
            told |= {TRACE_ID: span.trace_id} | _resource(span.resource)
        self._seq += 1
        return SpanOpen(
            VERSION,
            self._writer,
            self._seq,
            span.start_ns,
            self._run_id,
            span.id,
            self._component,
            self._type,
            clean_name(span.name or self._type),
            self._parent(),
            None if conversation is None else clean_name(conversation),
            clean_attributes(told),
            self._links() or None,
            content.input,
        )

    def _parent(self) -> str | None:
        if self._span.parent_id:
            return self._span.parent_id
        return self._root.id if self._root is not None and self._root.around else None

    def _aside(self) -> Object:
        span = self._span
        told: Object = {}
        if span.scope and span.scope != self._component:
            told["otel.scope"] = span.scope
        if span.kind not in ("UNSPECIFIED", "INTERNAL"):
            told["otel.kind"] = span.kind.lower()
        if span.trace_state:
            told["otel.trace_state"] = span.trace_state
        if span.dropped:
            told["otel.dropped"] = span.dropped
        return told

    def _links(self) -> list[Link]:
        return [
            Link(
                link.span_id,
                None if link.trace_id == self._span.trace_id else run_of(link.trace_id),
                clean_name(text_of(link.attributes.get("reason")) or "link"),
            )
            for link in self._span.links
        ]

    # --- how it ended -------------------------------------------------------------------------

    def _failure(self, content: Content) -> tuple[str, Attributes]:
        """Its status, and why. The exception that ended it is part of its end, and no line."""
        span = self._span
        if span.code != "ERROR":
            return "ok", {}
        told: Object = {"error.message": span.message or None}
        for place in range(len(span.events) - 1, -1, -1):
            if span.events[place].name == _EXCEPTION:
                content.events.add(place)
                told |= _error(span.events[place].attributes)
                break
        kind = text_of(told.get("error.type") or span.attributes.get("error.type"))
        status = _STATUSES.get(kind.rpartition(".")[2], "error")
        return status, _kept(told)

    def _line(self, event: Event) -> Log:
        self._seq += 1
        told, level, message = dict(event.attributes), "info", event.name
        if event.name == _EXCEPTION:
            error = _error(told)
            message = ": ".join(
                filter(None, map(text_of, (error["error.type"], error["error.message"])))
            )
            told = {key: value for key, value in told.items() if not key.startswith("exception.")}
            told, level = error | told, "error"
        return Log(
            VERSION,
            self._writer,
            self._seq,
            event.time_ns,
            self._run_id,
            self._component,
            level,
            clean_message(message or "event"),
            self._span.id,
            _kept(told),
        )


def _error(told: Object) -> Object:
    return {
        "error.type": told.get("exception.type"),
        "error.message": told.get("exception.message"),
        "error.stack": told.get("exception.stacktrace"),
    }


def _kept(told: Object) -> Attributes:
    return clean_attributes({key: value for key, value in told.items() if value is not None})
