"""Parse the spans and log records of OTLP/JSON, and report what is wrong with them.

    for raw, resource, scope in iter_raw_spans(document):
        span = parse_span(raw, resource, scope, report)     # None if ids or start are invalid

`report(rule, message, severity)` is called for every problem. Other invalid fields get a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import (
    Object,
    as_object,
    as_objects,
    as_text,
    get_field,
    parse_attributes,
    parse_enum,
    parse_hex_id,
    parse_int,
    parse_unix_nanos,
)

ReportProblem = Callable[[str, str, Literal["error", "warning"]], None]


def ignore_problem(rule: str, message: str, severity: str) -> None:
    """Ignore a problem that another pass over the file reports."""


KINDS: Final = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES: Final = ("UNSET", "OK", "ERROR")
SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Each has four severity numbers."""
_REMOTE: Final = 0x300
"""Span flags: whether the parent is remote is known, and it is remote."""
PENDING: Final = "pending_span"
"""Logfire also sends a placeholder when a span starts, under another id than the final span."""


class Event(msgspec.Struct, gc=False):
    time_ns: int
    name: str
    attributes: Object


class OtelLink(msgspec.Struct, gc=False):
    trace_id: str
    span_id: str
    attributes: Object


class OtelSpan(msgspec.Struct, kw_only=True, gc=False):
    """A span with valid ids and a valid start time."""

    trace_id: str
    id: str
    parent_id: str
    """Empty for a span without a parent."""
    name: str
    kind: str
    start_ns: int
    end_ns: int
    code: str
    message: str
    """Message of the status."""
    remote: bool
    """True if the parent is in another process."""
    trace_state: str
    attributes: Object
    events: list[Event]
    links: list[OtelLink]
    dropped: int
    """Number of attributes, events and links that the sender dropped."""
    resource: Object
    scope: str

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class OtelLogRecord(msgspec.Struct, kw_only=True, gc=False):
    """A log record with a valid trace id and time."""

    trace_id: str
    span_id: str
    time_ns: int
    severity: int
    severity_text: str
    event_name: str
    body: Any
    attributes: Object
    resource: Object
    scope: str


Raw = tuple[Object, Object, str]
"""A span or a log record, the attributes of its resource, and the name of its scope."""


def iter_raw_spans(document: Any) -> Iterator[Raw]:
    """Yield the spans of a request, or of an array of requests."""
    return _iter_raw(document, "resourceSpans", "scopeSpans", "spans")


def iter_raw_log_records(document: Any) -> Iterator[Raw]:
    return _iter_raw(document, "resourceLogs", "scopeLogs", "logRecords")


def _iter_raw(document: Any, outer: str, inner: str, name: str) -> Iterator[Raw]:
    requests = document if isinstance(document, list) else [document]
    for request in as_objects(requests):
        for group in as_objects(get_field(request, outer)):
            resource = parse_attributes(
                get_field(as_object(get_field(group, "resource")), "attributes")
            )
            # Before OTLP 1.0, scopes were called instrumentation libraries.
            old_inner = inner.replace("scope", "instrumentationLibrary")
            for part in as_objects(get_field(group, inner) or get_field(group, old_inner)):
                scope = get_field(part, "scope") or get_field(part, "instrumentationLibrary")
                scope_name = as_text(get_field(as_object(scope), "name"))
                for raw in as_objects(get_field(part, name)):
                    yield raw, resource, scope_name


def get_trace_id(raw: Object) -> str | None:
    """Return the trace id, or None if it is missing or invalid."""
    return parse_hex_id(get_field(raw, "traceId"), 16) or None


def parse_span(raw: Object, resource: Object, scope: str, report: ReportProblem) -> OtelSpan | None:
    trace_id, span_id = get_trace_id(raw), parse_hex_id(get_field(raw, "spanId"), 8)
    start_ns = parse_unix_nanos(get_field(raw, "startTimeUnixNano"))
    if trace_id is None:
        report(
            "trace-id",
            f"{_quote(raw, 'traceId')} is not a trace id (expected 32 hex digits, not all 0).",
            "error",
        )
    if not span_id:
        report(
            "span-id",
            f"{_quote(raw, 'spanId')} is not a span id (expected 16 hex digits, not all 0).",
            "error",
        )
    if not start_ns:
        report(
            "start-time",
            f"startTimeUnixNano: {_quote(raw, 'startTimeUnixNano')} is not a time"
            " (expected nanoseconds since 1970).",
            "error",
        )
    if trace_id is None or not span_id or not start_ns:
        return None
    status = as_object(get_field(raw, "status"))
    return OtelSpan(
        trace_id=trace_id,
        id=span_id,
        parent_id=_parent(raw, span_id, report),
        name=as_text(get_field(raw, "name")),
        kind=_enum(raw, "kind", "SPAN_KIND_", KINDS, report),
        start_ns=start_ns,
        end_ns=_end(raw, start_ns, report),
        code=_enum(status, "code", "STATUS_CODE_", CODES, report),
        message=as_text(get_field(status, "message")),
        remote=((parse_int(get_field(raw, "flags")) or 0) & _REMOTE) == _REMOTE,
        trace_state=as_text(get_field(raw, "traceState")),
        attributes=_attributes(raw, report),
        events=[_event(each, start_ns) for each in as_objects(get_field(raw, "events"))],
        links=_links(raw, report),
        dropped=sum(
            max(0, parse_int(get_field(raw, f"dropped{kind}Count")) or 0)
            for kind in ("Attributes", "Events", "Links")
        ),
        resource=resource,
        scope=scope,
    )


def is_pending(span: OtelSpan) -> bool:
    return span.attributes.get("logfire.span_type") == PENDING


def _parent(raw: Object, span_id: str, report: ReportProblem) -> str:
    parent = parse_hex_id(get_field(raw, "parentSpanId"), 8)
    if parent is None:
        report(
            "parent-id",
            f"parentSpanId: {_quote(raw, 'parentSpanId')} is not a span id"
            " (expected 16 hex digits).",
            "error",
        )
        return ""
    if parent == span_id:
        report("own-parent", f"span {span_id} is its own parent.", "error")
        return ""
    return parent


def _end(raw: Object, start_ns: int, report: ReportProblem) -> int:
    end_ns = parse_unix_nanos(get_field(raw, "endTimeUnixNano"))
    if end_ns is None:
        report(
            "end-time",
            f"endTimeUnixNano: {_quote(raw, 'endTimeUnixNano')} is not a time"
            " (expected nanoseconds since 1970).",
            "error",
        )
    elif end_ns == 0:
        report("end-time", "endTimeUnixNano: missing (a span is sent after it ends).", "warning")
    elif end_ns < start_ns:
        report("end-before-start", f"ends {start_ns - end_ns} ns before it starts.", "error")
    return max(end_ns or 0, start_ns)


def _enum(
    raw: Object, name: str, prefix: str, names: tuple[str, ...], report: ReportProblem
) -> str:
    value = parse_enum(get_field(raw, name), prefix, names)
    if value is None:
        report(
            name,
            f"{name}: {_quote(raw, name)} is unknown (expected one of {', '.join(names)}).",
            "warning",
        )
        return names[0]
    return value


def _attributes(raw: Object, report: ReportProblem) -> Object:
    pairs = get_field(raw, "attributes")
    if pairs is not None and not isinstance(pairs, list):
        report("attributes", "attributes: not an array (expected keys and values).", "error")
    return parse_attributes(pairs)


def _event(raw: Object, start_ns: int) -> Event:
    at_ns = parse_unix_nanos(get_field(raw, "timeUnixNano")) or start_ns
    return Event(
        at_ns, as_text(get_field(raw, "name")), parse_attributes(get_field(raw, "attributes"))
    )


def _links(raw: Object, report: ReportProblem) -> list[OtelLink]:
    links = []
    for link in as_objects(get_field(raw, "links")):
        trace_id, span_id = get_trace_id(link), parse_hex_id(get_field(link, "spanId"), 8)
        if trace_id is None or not span_id:
            report("link", "a link has no trace id or span id.", "warning")
            continue
        links.append(OtelLink(trace_id, span_id, parse_attributes(get_field(link, "attributes"))))
    return links


def parse_log_record(
    raw: Object, resource: Object, scope: str, report: ReportProblem
) -> OtelLogRecord | None:
    trace_id, span_id = get_trace_id(raw), parse_hex_id(get_field(raw, "spanId"), 8)
    at_ns = parse_unix_nanos(get_field(raw, "timeUnixNano")) or parse_unix_nanos(
        get_field(raw, "observedTimeUnixNano")
    )
    if trace_id is None:
        report("log-trace-id", "a log record has no trace id, so it belongs to no run.", "warning")
        return None
    if not at_ns:
        report("log-time", "a log record has no time (expected nanoseconds since 1970).", "error")
        return None
    return OtelLogRecord(
        trace_id=trace_id,
        span_id=span_id or "",
        time_ns=at_ns,
        severity=_severity(get_field(raw, "severityNumber")),
        severity_text=as_text(get_field(raw, "severityText")),
        event_name=as_text(get_field(raw, "eventName")),
        body=get_field(raw, "body"),
        attributes=_attributes(raw, report),
        resource=resource,
        scope=scope,
    )


def _severity(value: Any) -> int:
    """Return a severity from 1 to 24, or 0 if it is missing. Names end in a number: `WARN2`."""
    if isinstance(value, str) and value.startswith("SEVERITY_NUMBER_"):
        name = value.removeprefix("SEVERITY_NUMBER_").rstrip("234")
        return 1 + 4 * SEVERITIES.index(name) if name in SEVERITIES else 0
    number = parse_int(value)
    return number if number is not None and 0 <= number <= 24 else 0


def _quote(raw: Object, name: str) -> str:
    """Return a field's value for an error message: never long, never structured."""
    value = get_field(raw, name)
    return repr(value if not isinstance(value, (dict, list)) else type(value).__name__)[:60]
