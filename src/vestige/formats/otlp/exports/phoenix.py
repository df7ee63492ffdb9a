"""Spans of Phoenix: objects of its client's `get_spans`, or rows of `get_spans_dataframe`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text
from vestige.formats.otlp.exports.values import (
    flatten,
    parse_json,
    to_pairs,
    to_span_id,
    to_trace_id,
    to_unix_nanos,
)

NAME: Final = "phoenix"

_COLUMN: Final = "attributes."


def is_export(document: Any) -> bool:
    return any(map(_is_span, _items(document)[:1]))


def _items(document: Any) -> list[Object]:
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        return as_objects(document["data"])  # an answer of its HTTP API
    return as_objects(document if isinstance(document, list) else [document])


def _is_span(item: Object) -> bool:
    has_context = "context.span_id" in item or "span_id" in as_object(item.get("context"))
    return has_context and "start_time" in item and "span_kind" in item


def iter_spans(document: Any) -> Iterator[tuple[Object, Object]]:
    for item in _items(document):
        if _is_span(item):
            yield {}, _convert(item)


def _convert(item: Object) -> Object:
    context = as_object(item.get("context"))
    attributes: Object = {}
    flatten("", as_object(item.get("attributes")), attributes)
    for key, value in item.items():
        if key.startswith(_COLUMN):
            flatten(key.removeprefix(_COLUMN), value, attributes)
    attributes["openinference.span.kind"] = as_text(item.get("span_kind")).upper() or None
    code = as_text(item.get("status_code")).upper()
    return {
        "traceId": to_trace_id(context.get("trace_id") or item.get("context.trace_id")),
        "spanId": to_span_id(context.get("span_id") or item.get("context.span_id")),
        "parentSpanId": to_span_id(item.get("parent_id")),
        "name": item.get("name"),
        "startTimeUnixNano": to_unix_nanos(item.get("start_time")),
        "endTimeUnixNano": to_unix_nanos(item.get("end_time")),
        "status": {
            "code": f"STATUS_CODE_{code if code in ('OK', 'ERROR') else 'UNSET'}",
            "message": item.get("status_message"),
        },
        "attributes": to_pairs(attributes),
        "events": [
            {
                "timeUnixNano": to_unix_nanos(event.get("timestamp")),
                "name": event.get("name"),
                "attributes": to_pairs(as_object(event.get("attributes"))),
            }
            for event in as_objects(parse_json(item.get("events")))
        ],
    }
