"""Convert a span to records: its start, its events as log records, its end.

The records depend only on the span itself and on whether it is the run. So they are the same in
every file or request that contains the span.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from vestige.formats.otlp import vestige_spans
from vestige.formats.otlp.any_value import Object, as_text
from vestige.formats.otlp.constants import (
    FORMAT,
    SEQ,
    SYNTHETIC,
    TRACE_ID,
    external_run_id,
    external_writer_id,
    start_rank,
)
from vestige.formats.otlp.log_records import severity_to_level
from vestige.formats.otlp.parse_span import Event, OtelSpan
from vestige.formats.otlp.root_span import Root
from vestige.formats.otlp.span_content import Content, extract_content
from vestige.formats.otlp.span_types import (
    RUN,
    TOOL,
    find_conversation_id,
    get_component,
    get_span_name,
    get_span_type,
    is_log_span,
    rename_attributes,
)
from vestige.record.coercion import clean_attributes, clean_message, clean_name
from vestige.record.otlp_sequence_numbers import PLACEHOLDER, external_seq, log_seq
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
_LOGFIRE_KEYS: Final = frozenset(("logfire.span_type", "logfire.level_num", "logfire.msg"))
_RESOURCE_SKIPPED: Final = ("telemetry.sdk.",)
"""Attributes of the exporting library, which are the same in every run."""


def is_own(span: OtelSpan) -> bool:
    return vestige_spans.is_seq(span.attributes.get(SEQ))


def span_to_records(span: OtelSpan, root: Root | None) -> Iterator[KnownRecord]:
    if is_own(span):
        yield from vestige_spans.own_span_to_records(span)
    elif is_log_span(span):
        yield _log_span_to_record(span)
    else:
        yield from _SpanConverter(span, root).records()


def synthetic_run_records(trace_id: str, root: Root) -> Iterator[KnownRecord]:
    """Return the records of a synthetic run span, whose end moves as more spans arrive."""
    candidate = root.candidate
    run_id, writer = external_run_id(trace_id), external_writer_id(trace_id)
    yield SpanOpen(
        VERSION,
        writer,
        external_seq(PLACEHOLDER, 1),
        candidate.start_ns,
        run_id,
        root.id,
        clean_name(candidate.component),
        RUN,
        clean_name(candidate.name or FORMAT),
        None,
        None if root.conversation is None else clean_name(root.conversation),
        clean_attributes(
            {TRACE_ID: trace_id, SYNTHETIC: True} | _resource_attributes(candidate.resource)
        ),
    )
    yield SpanClose(
        VERSION,
        writer,
        external_seq(PLACEHOLDER, 2),
        candidate.end_ns,
        run_id,
        root.id,
        "error" if candidate.failed else "ok",
        candidate.end_ns - candidate.start_ns,
    )


def _log_span_to_record(span: OtelSpan) -> Log:
    """Return a log record of the parent span. The span's id identifies it."""
    attributes = {key: value for key, value in span.attributes.items() if key not in _LOGFIRE_KEYS}
    for event in span.events:
        if event.name == _EXCEPTION:
            attributes |= _error(event.attributes)
    severity = span.attributes.get("logfire.level_num")
    message = as_text(span.attributes.get("logfire.msg")) or span.name
    return Log(
        VERSION,
        external_writer_id(span.trace_id),
        log_seq(sha256(span.id.encode()).digest()),
        span.start_ns,
        external_run_id(span.trace_id),
        clean_name(get_component(span.resource, span.scope, FORMAT)),
        severity_to_level(severity if isinstance(severity, int) else 9),
        clean_message(message),
        span.parent_id,
        _clean(attributes),
    )


def _resource_attributes(resource: Object) -> Object:
    return {
        f"resource.{key}": value
        for key, value in resource.items()
        if not key.startswith(_RESOURCE_SKIPPED)
    }


class _SpanConverter:
    """Converts one span of another program."""

    def __init__(self, span: OtelSpan, root: Root | None) -> None:
        self._span = span
        self._root = root
        self._run_id = external_run_id(span.trace_id)
        self._is_run = root is not None and root.id == span.id
        self._type = RUN if self._is_run else get_span_type(span)
        self._component = clean_name(get_component(span.resource, span.scope, FORMAT))
        self._writer = external_writer_id(span.trace_id)
        self._seq = external_seq(start_rank(span.duration_ns, self._is_run), 0)

    def records(self) -> Iterator[KnownRecord]:
        span = self._span
        renamed, used = rename_attributes(span.attributes)
        model = renamed.get("model")
        content = extract_content(span.attributes, span.events, get_span_type(span), model)
        if content.model is not None:
            renamed["model"] = content.model
        status, error = self._status_and_error(content)
        others = {
            key: value
            for key, value in span.attributes.items()
            if key not in used and key not in content.used
        }
        yield self._open(renamed | others, content)
        for index, event in enumerate(span.events):
            if index not in content.events:
                yield self._event_to_log(event)
        self._seq += 1
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

    def _open(self, attributes: Object, content: Content) -> SpanOpen:
        span = self._span
        label = span.name if self._is_run else get_span_name(span.name)
        if self._type == TOOL:
            name = span.attributes.get("traceloop.entity.name")
            attributes.setdefault("tool_name", name if isinstance(name, str) else label)
        attributes |= self._otel_attributes()
        conversation = find_conversation_id(span)
        if self._is_run and self._root is not None:
            conversation = self._root.conversation
            attributes |= {TRACE_ID: span.trace_id} | _resource_attributes(span.resource)
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
            clean_name(label or self._type),
            self._parent(),
            None if conversation is None else clean_name(conversation),
            clean_attributes(attributes),
            self._links() or None,
            content.input,
        )

    def _parent(self) -> str | None:
        if self._span.parent_id:
            return self._span.parent_id
        return self._root.id if self._root is not None and self._root.adopts else None

    def _otel_attributes(self) -> Object:
        span = self._span
        attributes: Object = {}
        if span.scope and span.scope != self._component:
            attributes["otel.scope"] = span.scope
        if span.kind not in ("UNSPECIFIED", "INTERNAL"):
            attributes["otel.kind"] = span.kind.lower()
        if span.trace_state:
            attributes["otel.trace_state"] = span.trace_state
        if span.dropped:
            attributes["otel.dropped"] = span.dropped
        return attributes

    def _links(self) -> list[Link]:
        return [
            Link(
                link.span_id,
                None if link.trace_id == self._span.trace_id else external_run_id(link.trace_id),
                clean_name(as_text(link.attributes.get("reason")) or "link"),
            )
            for link in self._span.links
        ]

    def _status_and_error(self, content: Content) -> tuple[str, Attributes]:
        """Return the status and error. The exception that ended the span is not a log record."""
        span = self._span
        if span.code != "ERROR":
            return "ok", {}
        error: Object = {"error.message": span.message or None}
        for index in range(len(span.events) - 1, -1, -1):
            if span.events[index].name == _EXCEPTION:
                content.events.add(index)
                error |= _error(span.events[index].attributes)
                break
        kind = as_text(error.get("error.type") or span.attributes.get("error.type"))
        status = _STATUSES.get(kind.rpartition(".")[2], "error")
        return status, _clean(error)

    def _event_to_log(self, event: Event) -> Log:
        self._seq += 1
        attributes, level, message = dict(event.attributes), "info", event.name
        if event.name == _EXCEPTION:
            error = _error(attributes)
            message = ": ".join(
                filter(None, map(as_text, (error["error.type"], error["error.message"])))
            )
            others = {k: v for k, v in attributes.items() if not k.startswith("exception.")}
            attributes, level = error | others, "error"
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
            _clean(attributes),
        )


def _error(attributes: Object) -> Object:
    return {
        "error.type": attributes.get("exception.type"),
        "error.message": attributes.get("exception.message"),
        "error.stack": attributes.get("exception.stacktrace"),
    }


def _clean(attributes: Object) -> Attributes:
    return clean_attributes({key: value for key, value in attributes.items() if value is not None})
