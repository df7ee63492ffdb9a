"""Traces of Patronus, as in the TRAIL benchmark: each span contains its children."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text
from vestige.formats.otlp.exports.values import (
    flatten,
    to_pairs,
    to_span_id,
    to_trace_id,
    to_unix_nanos,
)

NAME: Final = "patronus"

_DURATION: Final = re.compile(
    r"P(?:(\d{1,5})D)?T?(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?"
)


def is_export(document: Any) -> bool:
    spans = as_objects(as_object(document).get("spans"))
    return bool(spans) and "child_spans" in spans[0]


def iter_spans(document: Object) -> Iterator[tuple[Object, Object]]:
    """Yield the resource and the span, parents before their children."""
    waiting = as_objects(document.get("spans"))[::-1]
    while waiting:
        span = waiting.pop()
        waiting += as_objects(span.get("child_spans"))[::-1]
        resource: Object = {}
        flatten("", as_object(span.get("resource_attributes")), resource)
        yield resource, _convert(span, document.get("trace_id"))


def _convert(span: Object, trace_id: Any) -> Object:
    began_ns = to_unix_nanos(span.get("timestamp"))
    attributes: Object = {}
    flatten("", as_object(span.get("span_attributes")), attributes)
    code = as_text(span.get("status_code")).upper()
    return {
        "traceId": to_trace_id(span.get("trace_id") or trace_id),
        "spanId": to_span_id(span.get("span_id")),
        "parentSpanId": to_span_id(span.get("parent_span_id")),
        "name": span.get("span_name"),
        "kind": f"SPAN_KIND_{as_text(span.get('span_kind')).upper() or 'UNSPECIFIED'}",
        "startTimeUnixNano": began_ns,
        "endTimeUnixNano": None if began_ns is None else began_ns + _duration_ns(span),
        "status": {
            "code": f"STATUS_CODE_{code if code in ('OK', 'ERROR') else 'UNSET'}",
            "message": span.get("status_message"),
        },
        "attributes": to_pairs(attributes),
        "events": [*_events(span), *_logs(span)],
    }


def _duration_ns(span: Object) -> int:
    """Return an ISO 8601 duration in nanoseconds: `PT2M43.561397S`."""
    found = _DURATION.fullmatch(as_text(span.get("duration")))
    if found is None:
        return 0
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1e9)


def _events(span: Object) -> Iterator[Object]:
    for event in as_objects(span.get("events")):
        attributes: Object = {}
        flatten("", as_object(event.get("Attributes") or event.get("attributes")), attributes)
        yield {
            "timeUnixNano": to_unix_nanos(event.get("Timestamp") or event.get("timestamp")),
            "name": event.get("Name") or event.get("name"),
            "attributes": to_pairs(attributes),
        }


def _logs(span: Object) -> Iterator[Object]:
    """Yield the log records of a span, which have the arguments and output of a function."""
    for log in as_objects(span.get("logs")):
        body = log.get("body")
        attributes: Object = {}
        for key, value in as_object(body).items():
            attributes[key] = value if isinstance(value, (str, int, float, bool)) else None
            if isinstance(value, (dict, list)):
                flatten(key, value, attributes)
        name = as_object(body).get("function.name") or log.get("severity_text") or "log"
        yield {
            "timeUnixNano": to_unix_nanos(log.get("timestamp")),
            "name": body if isinstance(body, str) else name,
            "attributes": to_pairs(attributes),
        }
