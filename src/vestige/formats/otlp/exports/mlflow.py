"""Traces of MLflow as JSON: one trace, a list, or one per line; versions 2 and 3.

Attributes are JSON text. Inputs, outputs, usage and cost have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text
from vestige.formats.otlp.exports.values import (
    KINDS,
    parse_json,
    to_json,
    to_pairs,
    to_span_id,
    to_trace_id,
    to_unix_nanos,
)

NAME: Final = "mlflow"

_HIDDEN: Final = frozenset(
    [
        "mlflow.spanType",
        "mlflow.spanInputs",
        "mlflow.spanOutputs",
        "mlflow.chat.tokenUsage",
        "mlflow.llm.cost",
        "mlflow.llm.model",
        "mlflow.traceRequestId",
        "mlflow.spanLogLevel",
    ]
)
"""Attributes that are read under other names, or say nothing."""
_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_input_tokens": "gen_ai.usage.cache_creation.input_tokens",
}


def is_export(document: Any) -> bool:
    return any(map(_is_trace, _items(document)[:1]))


def _items(document: Any) -> list[Object]:
    return as_objects(document if isinstance(document, list) else [document])


def _is_trace(item: Object) -> bool:
    spans = as_objects(as_object(item.get("data")).get("spans"))
    return "info" in item and bool(spans) and "attributes" in spans[0]


def iter_spans(document: Any) -> Iterator[tuple[Object, Object]]:
    for trace in filter(_is_trace, _items(document)):
        info = as_object(trace.get("info"))
        tags = _as_map(info.get("tags"))
        metadata = _as_map(info.get("trace_metadata") or info.get("request_metadata"))
        facts: Object = {"session.id": metadata.get("mlflow.trace.session")}
        facts |= {f"tag.{key}": tag for key, tag in tags.items() if not key.startswith("mlflow.")}
        for assessment in as_objects(info.get("assessments")):
            feedback = as_object(assessment.get("feedback") or assessment.get("expectation"))
            name = assessment.get("assessment_name") or assessment.get("name")
            if isinstance(name, str):
                facts[f"score.{name}"] = to_json(feedback.get("value"))
        service = {"service.name": {"stringValue": as_text(tags.get("mlflow.traceName")) or NAME}}
        for span in as_objects(as_object(trace.get("data")).get("spans")):
            yield service, _convert(span, facts)


def _as_map(value: Any) -> Object:
    """Return tags or metadata, which old versions write as a list of pairs."""
    if isinstance(value, list):
        return {str(pair.get("key")): pair.get("value") for pair in as_objects(value)}
    return as_object(value)


def _convert(span: Object, facts: Object) -> Object:
    context = as_object(span.get("context"))  # version 2
    parent = span.get("parent_span_id") or span.get("parent_id")
    decoded = {key: parse_json(raw) for key, raw in as_object(span.get("attributes")).items()}
    attributes: Object = {
        key: value if isinstance(value, (str, int, float, bool)) else to_json(value)
        for key, value in decoded.items()
        if key not in _HIDDEN and value is not None
    }
    attributes |= _named_attributes(decoded)
    if not parent:
        attributes |= facts
    status = span.get("status")
    status = status if isinstance(status, dict) else {"code": span.get("status_code")}
    code = as_text(status.get("code")).removeprefix("STATUS_CODE_").upper()
    return {
        "traceId": span.get("trace_id")
        if "trace_id" in span
        else to_trace_id(context.get("trace_id")),
        "spanId": span.get("span_id") if "span_id" in span else to_span_id(context.get("span_id")),
        "parentSpanId": span.get("parent_span_id") or to_span_id(span.get("parent_id")),
        "name": span.get("name"),
        "startTimeUnixNano": to_unix_nanos(
            span.get("start_time_unix_nano") or span.get("start_time")
        ),
        "endTimeUnixNano": to_unix_nanos(span.get("end_time_unix_nano") or span.get("end_time")),
        "status": {
            "code": f"STATUS_CODE_{code if code in ('OK', 'ERROR') else 'UNSET'}",
            "message": status.get("message") or span.get("status_message"),
        },
        "attributes": to_pairs(attributes),
        "events": [
            {
                "timeUnixNano": to_unix_nanos(
                    event.get("time_unix_nano") or event.get("timestamp")
                ),
                "name": event.get("name"),
                "attributes": to_pairs(as_object(event.get("attributes"))),
            }
            for event in as_objects(span.get("events"))
        ],
    }


def _named_attributes(decoded: Object) -> Object:
    """Return inputs, outputs, model, usage and cost under the names of the conventions."""
    found: Object = {
        "openinference.span.kind": KINDS.get(as_text(decoded.get("mlflow.spanType")).upper()),
        "llm.model_name": decoded.get("mlflow.llm.model"),
        "cost_usd": as_object(decoded.get("mlflow.llm.cost")).get("total_cost"),
    }
    for theirs, ours in (("mlflow.spanInputs", "input"), ("mlflow.spanOutputs", "output")):
        if decoded.get(theirs) is not None:
            found[f"{ours}.value"] = to_json(decoded[theirs])
    usage = as_object(decoded.get("mlflow.chat.tokenUsage"))
    return found | {ours: usage.get(theirs) for theirs, ours in _USAGE.items()}
