"""Traces of Langfuse: a trace with its observations (UI, API), or observations (blob export).

Field names are those of the API (`parentObservationId`) or of the blob export
(`parent_observation_id`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text, get_field
from vestige.formats.otlp.exports.values import (
    KINDS,
    parse_json,
    to_json,
    to_pairs,
    to_span_id,
    to_trace_id,
    to_unix_nanos,
)

NAME: Final = "langfuse"

_METADATA_MAX: Final = 40


def is_export(document: Any) -> bool:
    return any(_is_observation(item) for item in _observations(document)[:1])


def _observations(document: Any) -> list[Object]:
    if isinstance(document, dict):
        if isinstance(document.get("observations"), list):
            return as_objects(document["observations"])
        if isinstance(document.get("data"), list):
            return as_objects(document["data"])  # a page of the API
        return [document]
    return as_objects(document)


def _is_observation(item: Object) -> bool:
    has_parent = "parentObservationId" in item or "parent_observation_id" in item
    return has_parent and get_field(item, "startTime") is not None and "id" in item


def iter_spans(document: Any) -> Iterator[tuple[Object, Object]]:
    observations = [item for item in _observations(document) if _is_observation(item)]
    trace = _find_trace(document)
    roots = [item for item in observations if not get_field(item, "parentObservationId")]
    trace_id = trace.get("id") or (get_field(roots[0], "traceId") if roots else None)
    resource = {"service.name": {"stringValue": as_text(trace.get("name")) or NAME}}
    root_id: str | None = None
    facts = _trace_facts(trace)
    if trace and (len(roots) != 1 or roots[0].get("name") != trace.get("name")):
        root_id = to_span_id(f"trace {trace_id}")
        yield resource, _root(trace, observations, trace_id, root_id, facts)
    for item in observations:
        is_root = root_id is None and item in roots[:1]
        yield resource, _convert(item, trace_id, root_id, facts if is_root else {})


def _find_trace(document: Any) -> Object:
    if not isinstance(document, dict):
        return {}
    trace = as_object(document.get("trace"))
    return trace or (document if "observations" in document else {})


def _trace_facts(trace: Object) -> Object:
    facts: Object = {
        "session.id": get_field(trace, "sessionId"),
        "user.id": get_field(trace, "userId"),
        "version": trace.get("version"),
        "release": trace.get("release"),
        "environment": trace.get("environment"),
    }
    tags = trace.get("tags")
    if isinstance(tags, list) and tags:
        facts["tags"] = ", ".join(map(str, tags))
    for score in as_objects(trace.get("scores")):
        value = score.get("stringValue") or score.get("string_value")
        value = score.get("value") if value is None else value
        if isinstance(score.get("name"), str) and isinstance(value, (str, int, float)):
            facts[f"score.{score['name']}"] = value
    return facts | _metadata(trace)


def _root(
    trace: Object, observations: list[Object], trace_id: Any, root_id: str | None, facts: Object
) -> Object:
    """Return the trace itself as a span around its observations."""
    began = to_unix_nanos(trace.get("timestamp"))
    starts = [to_unix_nanos(get_field(item, "startTime")) for item in observations]
    ends = [to_unix_nanos(get_field(item, "endTime")) for item in observations]
    times = [time for time in (began, *starts, *ends) if time is not None]
    failed = any(item.get("level") == "ERROR" for item in observations)
    last = max(observations, key=lambda item: str(get_field(item, "startTime")), default={})
    return {
        "traceId": to_trace_id(trace_id),
        "spanId": root_id,
        "name": trace.get("name") or NAME,
        "startTimeUnixNano": min(times, default=None),
        "endTimeUnixNano": max(times, default=None),
        "status": {"code": _code(last if failed else {})},
        "attributes": to_pairs(facts | _bodies(trace)),
    }


def _convert(item: Object, trace_id: Any, root_id: str | None, facts: Object) -> Object:
    kind = as_text(item.get("type")).upper()
    began = to_unix_nanos(get_field(item, "startTime"))
    attributes: Object = facts | _metadata(item) | _bodies(item) | _usage(item)
    attributes["openinference.span.kind"] = KINDS.get(kind)
    if kind == "TOOL":
        attributes["tool.name"] = item.get("name")
    model = item.get("model") or get_field(item, "providedModelName")
    attributes["llm.model_name"] = model if isinstance(model, str) else None
    return {
        "traceId": to_trace_id(get_field(item, "traceId") or trace_id),
        "spanId": to_span_id(item.get("id")),
        "parentSpanId": to_span_id(get_field(item, "parentObservationId")) or root_id,
        "name": item.get("name") or kind.lower(),
        "startTimeUnixNano": began,
        "endTimeUnixNano": to_unix_nanos(get_field(item, "endTime")) or began,
        "status": {"code": _code(item), "message": get_field(item, "statusMessage")},
        "attributes": to_pairs(attributes),
    }


def _code(item: Object) -> str:
    return "STATUS_CODE_ERROR" if item.get("level") == "ERROR" else "STATUS_CODE_UNSET"


def _bodies(item: Object) -> Object:
    """Return the input and output, which a blob export has as JSON text."""
    found: Object = {}
    for name in ("input", "output"):
        value = item.get(name)
        if value is not None:
            value = parse_json(value)
            if name == "input" and isinstance(value, list):
                value = {"messages": value}
            if name == "output" and isinstance(value, dict) and "role" in value:
                value = {"choices": [{"index": 0, "message": value}]}
            found[f"{name}.value"] = to_json(value)
    return found


def _metadata(item: Object) -> Object:
    metadata = as_object(parse_json(item.get("metadata")))
    return {
        f"metadata.{key}": value if isinstance(value, (str, int, float, bool)) else to_json(value)
        for key, value in list(metadata.items())[:_METADATA_MAX]
        if value is not None
    }


def _usage(item: Object) -> Object:
    """Return tokens and cost. Kinds of input, such as cached, are counted separately there."""
    details = as_object(parse_json(get_field(item, "usageDetails")))
    details = details or as_object(parse_json(item.get("usage")))
    counts = {key: value for key, value in details.items() if type(value) in (int, float)}
    costs = as_object(parse_json(get_field(item, "costDetails")))
    cost = costs.get("total", get_field(item, "calculatedTotalCost"))
    cost = get_field(item, "totalCost") if cost is None else cost
    found: Object = {"cost_usd": cost if isinstance(cost, (int, float)) else None}
    for ours, words in (
        ("gen_ai.usage.input_tokens", ("input",)),
        ("gen_ai.usage.output_tokens", ("output",)),
        ("gen_ai.usage.cache_read.input_tokens", ("cache_read", "cached")),
        ("gen_ai.usage.cache_creation.input_tokens", ("cache_creation", "cache_write")),
    ):
        matching = [value for key, value in counts.items() if any(word in key for word in words)]
        found[ours] = int(sum(matching)) if matching else None
    return found
