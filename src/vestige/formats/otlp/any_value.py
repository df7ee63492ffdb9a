"""Plain values from OTLP/JSON: ids, times, enums, attributes. Nothing here raises.

    parse_hex_id("7kyZKhfTP7TYL3Cd+l2JQg==", 16)     # base64, as protobuf's JSON has it, or hex
    parse_unix_nanos("1794819339731452752")          # a string or a number
    parse_attributes([{"key": "n", "value": {"intValue": "3"}}])        # {"n": 3}

Field names are accepted in both spellings: OTLP/JSON (`traceId`) and protobuf (`trace_id`).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.protocol import TIME_MAX_NS
from vestige.limits import NESTING_MAX, OTLP_ATTRIBUTES_MAX

Object = dict[str, Any]

_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_CAPITAL: Final = re.compile(r"(?<!^)([A-Z])")
_SNAKE_CASE: Final[dict[str, str]] = {}
"""Cache of `traceId` to `trace_id`. OTLP has a few dozen field names."""

TOO_DEEP: Final = "<...>"


def get_field(message: Object, name: str) -> Any:
    """Return a field by its JSON name or its protobuf name, or None."""
    if name in message:
        return message[name]
    snake = _SNAKE_CASE.get(name)
    if snake is None:
        snake = _SNAKE_CASE[name] = _CAPITAL.sub(r"_\1", name).lower()
    return message.get(snake)


def as_object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Object]:
    """Return the objects of an array, without its other items."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def decode_json_text(value: Any) -> Any:
    """Return the decoded value of JSON text, which most senders use for structured attributes."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
    return value


def parse_hex_id(value: Any, size_bytes: int) -> str | None:
    """Return an id as lowercase hex: empty if it is absent or all zeros, None if it is invalid."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or len(value) > 64:
        return None
    if len(value) == 2 * size_bytes and _HEX.fullmatch(value):
        hex_text = value.lower()
    else:
        try:
            raw = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            return None
        if len(raw) != size_bytes:
            return None
        hex_text = raw.hex()
    return hex_text if hex_text.strip("0") else ""


def parse_int(value: Any) -> int | None:
    """Return a 64-bit integer, which OTLP/JSON may write as text."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and abs(value) < 2**63 else None
    if isinstance(value, str):
        if len(value) > 20 or not value.lstrip("-").isdecimal() or not value.isascii():
            return None
        try:
            value = int(value)
        except ValueError:  # `--1`
            return None
    return value if isinstance(value, int) and -(2**63) <= value < 2**64 else None


def parse_unix_nanos(value: Any) -> int | None:
    """Return a time: 0 if it is absent, None if it is invalid or out of range."""
    if value is None or value == "":
        return 0
    number = parse_int(value)
    return number if number is not None and 0 <= number <= TIME_MAX_NS else None


def parse_enum(value: Any, prefix: str, names: tuple[str, ...]) -> str | None:
    """Return the name of an enum value written as a number or a name; None if it is unknown."""
    if value is None:
        return names[0]
    if isinstance(value, str):
        name = value.removeprefix(prefix)
        return name if name in names else None
    number = parse_int(value)
    return names[number] if number is not None and 0 <= number < len(names) else None


def parse_any_value(value: Any, depth: int = 0) -> Any:
    """Return the Python value of an AnyValue; nesting beyond the limit becomes `<...>`."""
    if not isinstance(value, dict):
        return value if isinstance(value, (str, int, float, bool)) else None
    if depth >= NESTING_MAX:
        return TOO_DEEP
    for name, content in value.items():
        match name:
            case "stringValue" | "string_value" | "boolValue" | "bool_value":
                return content if isinstance(content, (str, bool)) else str(content)
            case "intValue" | "int_value":
                number = parse_int(content)
                return content if number is None and isinstance(content, str) else number
            case "doubleValue" | "double_value":
                return _parse_double(content)
            case "arrayValue" | "array_value":
                return [
                    parse_any_value(item, depth + 1)
                    for item in as_objects(get_field(as_object(content), "values"))
                ]
            case "kvlistValue" | "kvlist_value":
                pairs = as_objects(get_field(as_object(content), "values"))
                return {
                    as_text(get_field(pair, "key")): parse_any_value(
                        get_field(pair, "value"), depth + 1
                    )
                    for pair in pairs
                }
            case "bytesValue" | "bytes_value":
                return _parse_bytes(content)
    return None


def _parse_double(content: Any) -> Any:
    if isinstance(content, str):
        try:
            return float(content)  # "NaN" and "Infinity" are written as text
        except ValueError:
            return content
    return (
        float(content) if isinstance(content, (int, float)) and abs(content) < 2**1023 else content
    )


def _parse_bytes(content: Any) -> Any:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return content if isinstance(content, str) else None


def parse_attributes(pairs: Any) -> Object:
    """Return attributes from a list of key-value pairs, or from an object that some senders use."""
    if isinstance(pairs, dict):
        return dict(list(pairs.items())[:OTLP_ATTRIBUTES_MAX])
    attributes: Object = {}
    for pair in as_objects(pairs)[:OTLP_ATTRIBUTES_MAX]:
        key = get_field(pair, "key")
        if isinstance(key, str) and key:
            attributes[key] = parse_any_value(get_field(pair, "value"))
    return attributes
