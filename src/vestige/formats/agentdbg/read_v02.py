"""Convert the spans of the later layout (v0.2, meta.json and spans.jsonl) to events of v0.1.

Each line is one OpenTelemetry span, written when it ends; the root is last. Attributes (`gen_ai.*`,
`maida.*`) describe it, and span events have its texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vestige.formats.agentdbg.parse_event import Line, event_of


def events_of(span: dict[str, Any]) -> Iterator[Line]:
    """Yield the events of a span."""
    attributes = span.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    events = [event for event in _list(span.get("events")) if isinstance(event, dict)]
    if span.get("parent_span_id") is None:
        yield from _root(span, attributes, events)
        return
    kind, payload = _payload(span, attributes, events)
    yield _event(span, kind, payload, span.get("end_time") or span.get("start_time"), attributes)


def _root(
    span: dict[str, Any], attributes: dict[str, Any], events: list[dict[str, Any]]
) -> Iterator[Line]:
    start = {key: attributes.get(f"maida.{key}") for key in _ABOUT_RUN}
    yield _event(span, "RUN_START", start, span.get("start_time"), attributes)
    for event in events:
        inner = _dict(event.get("attributes"))
        at = event.get("timestamp")
        if event.get("name") == "exception":
            yield _inside(span, "ERROR", "exception", _error(inner), at)
        elif event.get("name") == "maida.loop.warning":
            yield _inside(span, "LOOP_WARNING", "loop_warning", _loop(inner), at)
        elif event.get("name") == "state":
            yield _inside(span, "STATE_UPDATE", "state", _state(inner), at)
    status = {"OK": "ok", "ERROR": "error"}.get(str(span.get("status_code")), "error")
    end = {"status": status, "summary": {"duration_ms": span.get("duration_ms")}}
    if span.get("end_time"):
        yield _inside(span, "RUN_END", "run_end", end, span.get("end_time"))


_ABOUT_RUN = ("run_name", "python_version", "platform", "cwd", "argv")


def _payload(
    span: dict[str, Any], attributes: dict[str, Any], events: list[dict[str, Any]]
) -> tuple[str, dict[str, Any]]:
    if "gen_ai.system" in attributes or "gen_ai.operation.name" in attributes:
        return "LLM_CALL", _llm(span, attributes, events)
    if attributes.get("maida.tool_name"):
        return "TOOL_CALL", {
            "tool_name": attributes["maida.tool_name"],
            "args": _event_value(events, "maida.tool.args", "args"),
            "result": _event_value(events, "maida.tool.result", "result"),
            **_outcome(span, attributes),
        }
    if span.get("name") == "loop_warning" or attributes.get("maida.event_type") == "LOOP_WARNING":
        return "LOOP_WARNING", _loop(_first(events, "maida.loop.warning"))
    if span.get("name") == "state":
        return "STATE_UPDATE", _state(_first(events, "state"))
    if "maida.error_type" in attributes:
        return "ERROR", _error(attributes)
    return str(attributes.get("maida.event_type") or span.get("kind") or "SPAN"), {
        "attributes": attributes,
        "events": events,
    }


def _llm(
    span: dict[str, Any], attributes: dict[str, Any], events: list[dict[str, Any]]
) -> dict[str, Any]:
    usage = {
        theirs: attributes.get(f"gen_ai.usage.{ours}")
        for theirs, ours in (
            ("prompt_tokens", "input_tokens"),
            ("completion_tokens", "output_tokens"),
            ("total_tokens", "total_tokens"),
        )
    }
    return {
        "model": attributes.get("gen_ai.request.model") or span.get("name"),
        "prompt": _first(events, "gen_ai.user.message").get("content"),
        "response": _first(events, "gen_ai.assistant.message").get("content"),
        "usage": usage if any(value is not None for value in usage.values()) else None,
        "provider": attributes.get("gen_ai.system"),
        "temperature": attributes.get("gen_ai.request.temperature"),
        "stop_reason": attributes.get("gen_ai.response.finish_reasons"),
        **_outcome(span, attributes),
    }


def _outcome(span: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    failed = span.get("status_code") == "ERROR"
    return {"status": "error" if failed else "ok", "error": _error(attributes) if failed else None}


def _error(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "error_type": attributes.get("maida.error_type") or "Error",
        "message": attributes.get("maida.error_message"),
        "stack": attributes.get("maida.error_stack"),
    }


def _loop(attributes: dict[str, Any]) -> dict[str, Any]:
    return {**attributes, "evidence_event_ids": _parsed(attributes.get("evidence_event_ids"))}


def _state(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: _parsed(attributes.get(key)) for key in ("state", "diff")}


def _event(
    span: dict[str, Any], kind: str, payload: dict[str, Any], at: Any, attributes: dict[str, Any]
) -> Line:
    return event_of(
        {
            "event_id": span.get("span_id"),
            "parent_id": span.get("parent_span_id"),
            "event_type": kind,
            "ts": at,
            "duration_ms": span.get("duration_ms"),
            "name": span.get("name"),
            "payload": payload,
            "meta": _parsed(attributes.get("maida.meta")),
        }
    )


def _inside(span: dict[str, Any], kind: str, name: str, payload: dict[str, Any], at: Any) -> Line:
    """Return an event of the root span. It has no id of its own."""
    return event_of(
        {
            "parent_id": span.get("span_id"),
            "event_type": kind,
            "ts": at,
            "name": name,
            "payload": payload,
        }
    )


def _event_value(events: list[dict[str, Any]], name: str, key: str) -> Any:
    return _parsed(_first(events, name).get(key))


def _first(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for event in events:
        if event.get("name") == name:
            return _dict(event.get("attributes"))
    return {}


def _parsed(value: Any) -> Any:
    """Decode a JSON value that was stored as text."""
    if not isinstance(value, str):
        return value
    import json

    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
