"""A span of a trace, and a line of a log, as OTLP has them: parsed, with what is wrong with them.

    for raw, resource, scope in raw_spans(document):
        span = parse_span(raw, resource, scope, tell)       # None: it cannot be placed

`tell(rule, message, severity)` hears of every fault. A lesser one is mended and the span is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from vestige.formats.otlp.any_value import (
    Object,
    attributes_of,
    enum_of,
    get,
    hex_id,
    int_of,
    object_of,
    objects_of,
    text_of,
    time_ns,
)

Tell = Callable[[str, str, Literal["error", "warning"]], None]


def unheard(rule: str, message: str, severity: str) -> None:
    """For `tell`: it was told before, or will be."""


KINDS: Final = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES: Final = ("UNSET", "OK", "ERROR")
SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Of four numbers each."""
_REMOTE: Final = 0x300
"""Flags: it is known whether the parent is in another process, and it is."""
PENDING: Final = "pending_span"
"""Logfire sends a span when it begins, too, with an id of its own; the true one follows."""


class Event(msgspec.Struct, gc=False):
    time_ns: int
    name: str
    attributes: Object


class OtelLink(msgspec.Struct, gc=False):
    trace_id: str
    span_id: str
    attributes: Object


class OtelSpan(msgspec.Struct, kw_only=True, gc=False):
    """A span that can be placed: its ids are ids, and it began at a time."""

    trace_id: str
    id: str
    parent_id: str
    """Empty: none."""
    name: str
    kind: str
    start_ns: int
    end_ns: int
    code: str
    message: str
    """Of its status."""
    remote: bool
    """Its parent is in another process."""
    trace_state: str
    attributes: Object
    events: list[Event]
    links: list[OtelLink]
    dropped: int
    """Attributes, events and links that its program dropped."""
    resource: Object
    scope: str

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class OtelLine(msgspec.Struct, kw_only=True, gc=False):
    """A log record of a trace."""

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


def raw_spans(document: Any) -> Iterator[Raw]:
    """The spans of a request, or of several in an array."""
    return _raw(document, "resourceSpans", "scopeSpans", "spans")


def raw_lines(document: Any) -> Iterator[Raw]:
    return _raw(document, "resourceLogs", "scopeLogs", "logRecords")


def _raw(document: Any, outer: str, inner: str, name: str) -> Iterator[Raw]:
    requests = document if isinstance(document, list) else [document]
    for request in objects_of(requests):
        for group in objects_of(get(request, outer)):
            resource = attributes_of(get(object_of(get(group, "resource")), "attributes"))
            # The second: how it was called before it was stable.
            scopes = get(group, inner) or get(
                group, inner.replace("scope", "instrumentationLibrary")
            )
            for part in objects_of(scopes):
                scope = object_of(get(part, "scope") or get(part, "instrumentationLibrary"))
                told = text_of(get(scope, "name"))
                for raw in objects_of(get(part, name)):
                    yield raw, resource, told


def trace_of(raw: Object) -> str | None:
    """Its trace; None: it has none that can be used."""
    return hex_id(get(raw, "traceId"), 16) or None


def parse_span(raw: Object, resource: Object, scope: str, tell: Tell) -> OtelSpan | None:
    trace_id, span_id = trace_of(raw), hex_id(get(raw, "spanId"), 8)
    start_ns = time_ns(get(raw, "startTimeUnixNano"))
    if trace_id is None:
        tell(
            "trace-id",
            f"{_quoted(get(raw, 'traceId'))} is no trace id (expected 32 hex digits, not all 0).",
            "error",
        )
    if not span_id:
        tell(
            "span-id",
            f"{_quoted(get(raw, 'spanId'))} is no span id (expected 16 hex digits, not all 0).",
            "error",
        )
    if not start_ns:
        tell(
            "start-time",
            f"startTimeUnixNano: {_quoted(get(raw, 'startTimeUnixNano'))} is no time (expected nanoseconds since 1970).",
            "error",
        )
    if trace_id is None or not span_id or not start_ns:
        return None
    status = object_of(get(raw, "status"))
    return OtelSpan(
        trace_id=trace_id,
        id=span_id,
        parent_id=_parent(raw, span_id, tell),
        name=text_of(get(raw, "name")),
        kind=_enum(raw, "kind", "SPAN_KIND_", KINDS, tell),
        start_ns=start_ns,
        end_ns=_end(raw, start_ns, tell),
        code=_enum(status, "code", "STATUS_CODE_", CODES, tell),
        message=text_of(get(status, "message")),
        remote=((int_of(get(raw, "flags")) or 0) & _REMOTE) == _REMOTE,
        trace_state=text_of(get(raw, "traceState")),
        attributes=_attributes(raw, tell),
        events=[_event(each, start_ns) for each in objects_of(get(raw, "events"))],
        links=_links(raw, tell),
        dropped=sum(
            max(0, int_of(get(raw, f"dropped{what}Count")) or 0)
            for what in ("Attributes", "Events", "Links")
        ),
        resource=resource,
        scope=scope,
    )


def is_pending(span: OtelSpan) -> bool:
    return span.attributes.get("logfire.span_type") == PENDING


def _parent(raw: Object, span_id: str, tell: Tell) -> str:
    parent = hex_id(get(raw, "parentSpanId"), 8)
    if parent is None:
        tell(
            "parent-id",
            f"parentSpanId: {_quoted(get(raw, 'parentSpanId'))} is no span id (expected 16 hex digits).",
            "error",
        )
        return ""
    if parent == span_id:
        tell("own-parent", f"span {span_id} is its own parent.", "error")
        return ""
    return parent


def _end(raw: Object, start_ns: int, tell: Tell) -> int:
    end_ns = time_ns(get(raw, "endTimeUnixNano"))
    if end_ns is None:
        tell(
            "end-time",
            f"endTimeUnixNano: {_quoted(get(raw, 'endTimeUnixNano'))} is no time (expected nanoseconds since 1970).",
            "error",
        )
    elif end_ns == 0:
        tell("end-time", "endTimeUnixNano: missing (a span is sent when it has ended).", "warning")
    elif end_ns < start_ns:
        tell("end-before-start", f"ends {start_ns - end_ns} ns before it starts.", "error")
    return max(end_ns or 0, start_ns)


def _enum(raw: Object, name: str, prefix: str, names: tuple[str, ...], tell: Tell) -> str:
    found = enum_of(get(raw, name), prefix, names)
    if found is None:
        tell(
            name,
            f"{name}: {_quoted(get(raw, name))} is not known (expected one of {', '.join(names)}).",
            "warning",
        )
        return names[0]
    return found


def _attributes(raw: Object, tell: Tell) -> Object:
    given = get(raw, "attributes")
    if given is not None and not isinstance(given, list):
        tell("attributes", "attributes: no array (expected keys and values).", "error")
    return attributes_of(given)


def _event(raw: Object, start_ns: int) -> Event:
    at_ns = time_ns(get(raw, "timeUnixNano")) or start_ns
    return Event(at_ns, text_of(get(raw, "name")), attributes_of(get(raw, "attributes")))


def _links(raw: Object, tell: Tell) -> list[OtelLink]:
    found = []
    for link in objects_of(get(raw, "links")):
        trace_id, span_id = trace_of(link), hex_id(get(link, "spanId"), 8)
        if trace_id is None or not span_id:
            tell("link", "a link without the ids of a trace and a span.", "warning")
            continue
        found.append(OtelLink(trace_id, span_id, attributes_of(get(link, "attributes"))))
    return found


def parse_line(raw: Object, resource: Object, scope: str, tell: Tell) -> OtelLine | None:
    trace_id, span_id = trace_of(raw), hex_id(get(raw, "spanId"), 8)
    at_ns = time_ns(get(raw, "timeUnixNano")) or time_ns(get(raw, "observedTimeUnixNano"))
    if trace_id is None:
        tell("log-trace-id", "a log record without a trace: it belongs to no run.", "warning")
        return None
    if not at_ns:
        tell("log-time", "a log record without a time (expected nanoseconds since 1970).", "error")
        return None
    return OtelLine(
        trace_id=trace_id,
        span_id=span_id or "",
        time_ns=at_ns,
        severity=_severity(get(raw, "severityNumber")),
        severity_text=text_of(get(raw, "severityText")),
        event_name=text_of(get(raw, "eventName")),
        body=get(raw, "body"),
        attributes=_attributes(raw, tell),
        resource=resource,
        scope=scope,
    )


def _severity(value: Any) -> int:
    """1 to 24; 0: not told. A name is that of a number: `SEVERITY_NUMBER_WARN2`."""
    if isinstance(value, str) and value.startswith("SEVERITY_NUMBER_"):
        name = value.removeprefix("SEVERITY_NUMBER_").rstrip("234")
        return 1 + 4 * SEVERITIES.index(name) if name in SEVERITIES else 0
    number = int_of(value)
    return number if number is not None and 0 <= number <= 24 else 0


def _quoted(value: Any) -> str:
    return repr(value if not isinstance(value, (dict, list)) else type(value).__name__)[:60]
