"""Values of exports: times, ids and nested attributes in the shapes of OTLP."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.otlp.any_value import Object, parse_hex_id
from vestige.formats.protocol import derived_uuid
from vestige.formats.times_and_outcomes import parse_time_ns

KINDS: Final = {
    "LLM": "LLM", "CHAT_MODEL": "LLM", "GENERATION": "LLM", "COMPLETION": "LLM",
    "TOOL": "TOOL", "AGENT": "AGENT", "CHAIN": "CHAIN", "RETRIEVER": "RETRIEVER",
    "EMBEDDING": "EMBEDDING", "RERANKER": "RERANKER", "GUARDRAIL": "GUARDRAIL",
    "EVALUATOR": "EVALUATOR", "PROMPT": "PROMPT",
}  # fmt: skip
"""OpenInference's kind for each type of span; others are steps."""

_DEPTH_MAX: Final = 20
_MILLISECONDS_MIN: Final = 10**11
"""Numbers from here on are not seconds: they would be the year 5138."""


def to_unix_nanos(value: Any) -> int | None:
    """Return a time from ISO 8601, or from seconds, milliseconds or nanoseconds since 1970."""
    if isinstance(value, str):
        return parse_time_ns(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        return None
    if value >= 10**17:
        return int(value)
    return int(value * (1_000_000 if value >= _MILLISECONDS_MIN else 1_000_000_000))


def to_trace_id(value: Any) -> str:
    """Return a trace id: the hex digits of an id, or some that derive from it."""
    text = str(value).removeprefix("tr-").removeprefix("0x").replace("-", "")
    return parse_hex_id(text, 16) or derived_uuid("trace", str(value)).replace("-", "")


def to_span_id(value: Any) -> str | None:
    """Return a span id likewise; None without an id."""
    if value is None or value == "":
        return None
    text = str(value).removeprefix("0x")
    return parse_hex_id(text, 8) or derived_uuid("span", str(value)).replace("-", "")[16:]


def flatten(prefix: str, value: Any, found: Object, depth: int = 0) -> None:
    """Add nested attributes under dotted names: `llm.input_messages.0.message.role`."""
    if value is None:
        return
    if isinstance(value, (dict, list)) and value and depth < _DEPTH_MAX:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            flatten(f"{prefix}.{key}" if prefix else str(key), each, found, depth + 1)
    else:
        found[prefix] = {"stringValue": to_json(value)} if _is_nested(value) else any_value(value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list))


def any_value(value: Any) -> Object:
    """Return a value as OTLP writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"intValue": str(int(value))} if value.is_integer() else {"doubleValue": value}
    return {"stringValue": value if isinstance(value, str) else to_json(value)}


def to_pairs(attributes: Object) -> list[Object]:
    """Return attributes as key-value pairs, without those that are null."""
    return [
        {"key": key, "value": value if isinstance(value, dict) else any_value(value)}
        for key, value in attributes.items()
        if value is not None
    ]


def to_json(value: Any) -> str:
    """Return text as it is, and other values as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError):
        return str(value)


def parse_json(value: Any) -> Any:
    """Return the value of JSON text; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value
