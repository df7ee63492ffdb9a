"""Find every place where a JSON value does not match a schema. Pure.

    for fault in find_faults(value, schema): fault.pointer, fault.rule, fault.message

Supports the keywords of our own schemas (formats/artifacts/json_files/json_schemas.py). It is
stricter than JSON Schema in one point: `1.0` is not an integer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.json_files.json_schemas import Schema

SHOWN_MAX = 80
"""Characters of a wrong value in a message."""


class Fault(msgspec.Struct, frozen=True, gc=False):
    pointer: str
    rule: str
    message: str


def find_faults(value: Any, schema: Schema, pointer: str = "") -> Iterator[Fault]:
    """Yield the mismatches depth-first, in the order of the schema."""
    if "anyOf" in schema:
        yield from _any_of(value, schema, pointer)
        return
    expected = schema.get("type")
    if expected is not None and not is_type(value, expected):
        yield Fault(pointer, "type-wrong", f"{shown(value)} is not {_a(expected)}.")
        return
    if isinstance(value, dict):
        yield from _object(value, schema, pointer)
    elif isinstance(value, list):
        yield from _array(value, schema, pointer)
    else:
        yield from _scalar(value, schema, pointer)


def is_type(value: Any, name: str) -> bool:
    if name == "integer":
        return type(value) is int
    if name == "number":
        return type(value) in (int, float)
    return type(value) is _TYPES[name]


def shown(value: Any) -> str:
    """Return a value for a message: short JSON."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def step(pointer: str, key: str | int) -> str:
    """Extend a JSON pointer by one level (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _object(value: dict[str, Any], schema: Schema, pointer: str) -> Iterator[Fault]:
    properties = schema.get("properties", {})
    missing = schema.get("x-rule-required", "key-missing")
    for key in schema.get("required", ()):
        if key not in value:
            yield Fault(pointer, missing, f"the key {key!r} is missing.")
    for key, inner in properties.items():
        if key in value:
            yield from find_faults(value[key], inner, step(pointer, key))
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        for key in value.keys() - properties.keys():
            yield from find_faults(value[key], extra, step(pointer, key))
    if "x-also" in schema:
        yield from _object(value, schema["x-also"], pointer)


def _array(value: list[Any], schema: Schema, pointer: str) -> Iterator[Fault]:
    items = schema.get("items")
    if items:
        for at, item in enumerate(value):
            yield from find_faults(item, items, step(pointer, at))
    if schema.get("uniqueItems"):
        seen = set()
        for at, item in enumerate(value):
            if isinstance(item, (dict, list)):
                continue  # of the wrong type anyway, and maybe nested deeper than one can write
            key = json.dumps(item)
            if key in seen:
                yield Fault(step(pointer, at), schema["x-rule"], f"{shown(item)} is there twice.")
            seen.add(key)


def _scalar(value: Any, schema: Schema, pointer: str) -> Iterator[Fault]:
    rule = schema.get("x-rule", "type-wrong")
    if "const" in schema and value != schema["const"]:
        yield Fault(pointer, rule, f"{shown(value)} should be {shown(schema['const'])}.")
    elif "enum" in schema and value not in schema["enum"]:
        choice = " or ".join(shown(each) for each in schema["enum"])
        yield Fault(pointer, rule, f"{shown(value)} should be {choice}.")
    elif "minimum" in schema and value < schema["minimum"]:
        yield Fault(pointer, rule, f"{value} is below {schema['minimum']}.")
    elif "pattern" in schema and re.search(schema["pattern"], value) is None:
        why = (
            constants.fault_of_path(value) or "names a directory"
            if rule == "path-unsafe"
            else "is not 64 lowercase hex digits"
        )
        yield Fault(pointer, rule, f"{shown(value)} {why}.")


def _any_of(value: Any, schema: Schema, pointer: str) -> Iterator[Fault]:
    choices = schema["anyOf"]
    if not any(next(find_faults(value, choice), None) is None for choice in choices):
        names = " or ".join(_a(choice["type"]) for choice in choices)
        yield Fault(pointer, "type-wrong", f"{shown(value)} is not {names}.")


_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _a(name: str) -> str:
    if name == "null":
        return name
    return f"an {name}" if name[0] in "aio" else f"a {name}"
