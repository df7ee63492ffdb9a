"""JSON as OTLP writes it, to plain values: ids, times, enums, attributes. Whatever is there, nothing raises.

    hex_id("7kyZKhfTP7TYL3Cd+l2JQg==", 16)       # base64, as protobuf's own JSON has it; or hex
    time_ns("1794819339731452752")               # text, or a number
    attributes_of([{"key": "n", "value": {"intValue": "3"}}])        # {"n": 3}

Names are read as OTLP/JSON has them (`traceId`) and as protobuf files have them (`trace_id`).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any, Final

import msgspec

from vestige.formats.protocol import TIME_MAX_NS
from vestige.limits import NESTING_MAX, OTLP_ATTRIBUTES_MAX

Object = dict[str, Any]

_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_WORD: Final = re.compile(r"(?<!^)([A-Z])")
_NAMES: Final[dict[str, str]] = {}
"""`traceId` to `trace_id`: there are a few dozen."""

DEEP: Final = "<...>"


def get(of: Object, name: str) -> Any:
    """A field by its name in JSON, or by its name in protobuf."""
    if name in of:
        return of[name]
    other = _NAMES.get(name)
    if other is None:
        other = _NAMES[name] = _WORD.sub(r"_\1", name).lower()
    return of.get(other)


def object_of(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[Object]:
    """The objects of an array; what is none among them is passed over."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def decoded(value: Any) -> Any:
    """Structured, as newer senders write it; or JSON in text, as most do."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
    return value


def hex_id(value: Any, size_bytes: int) -> str | None:
    """An id as lowercase hex. Empty where there is none; None: what is there is no id."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or len(value) > 64:
        return None
    if len(value) == 2 * size_bytes and _HEX.fullmatch(value):
        found = value.lower()
    else:
        try:
            raw = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            return None
        if len(raw) != size_bytes:
            return None
        found = raw.hex()
    return found if found.strip("0") else ""


def int_of(value: Any) -> int | None:
    """A 64-bit number, which JSON may hold as text."""
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


def time_ns(value: Any) -> int | None:
    """0 where there is none; None: what is there is no time that a record can have."""
    if value is None or value == "":
        return 0
    found = int_of(value)
    return found if found is not None and 0 <= found <= TIME_MAX_NS else None


def enum_of(value: Any, prefix: str, names: tuple[str, ...]) -> str | None:
    """The name of an enum's value, which may be a number or a name; None: it has no such value."""
    if value is None:
        return names[0]
    if isinstance(value, str):
        name = value.removeprefix(prefix)
        return name if name in names else None
    number = int_of(value)
    return names[number] if number is not None and 0 <= number < len(names) else None


def any_value(value: Any, depth: int = 0) -> Any:
    """An AnyValue as a plain one. Deeper than anybody nests, it is cut."""
    if not isinstance(value, dict):
        return value if isinstance(value, (str, int, float, bool)) else None
    if depth >= NESTING_MAX:
        return DEEP
    for name, held in value.items():
        match name:
            case "stringValue" | "string_value" | "boolValue" | "bool_value":
                return held if isinstance(held, (str, bool)) else str(held)
            case "intValue" | "int_value":
                found = int_of(held)
                return held if found is None and isinstance(held, str) else found
            case "doubleValue" | "double_value":
                return _double(held)
            case "arrayValue" | "array_value":
                return [
                    any_value(each, depth + 1)
                    for each in objects_of(get(object_of(held), "values"))
                ]
            case "kvlistValue" | "kvlist_value":
                pairs = objects_of(get(object_of(held), "values"))
                return {
                    text_of(get(pair, "key")): any_value(get(pair, "value"), depth + 1)
                    for pair in pairs
                }
            case "bytesValue" | "bytes_value":
                return _bytes(held)
    return None


def _double(held: Any) -> Any:
    if isinstance(held, str):
        try:
            return float(held)  # NaN and infinities have names
        except ValueError:
            return held
    return float(held) if isinstance(held, (int, float)) and abs(held) < 2**1023 else held


def _bytes(held: Any) -> Any:
    try:
        return base64.b64decode(held, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return held if isinstance(held, str) else None


def attributes_of(pairs: Any) -> Object:
    """A list of keys and values, or the object that some write in its place."""
    if isinstance(pairs, dict):
        return dict(list(pairs.items())[:OTLP_ATTRIBUTES_MAX])
    found: Object = {}
    for pair in objects_of(pairs)[:OTLP_ATTRIBUTES_MAX]:
        key = get(pair, "key")
        if isinstance(key, str) and key:
            found[key] = any_value(get(pair, "value"))
    return found
