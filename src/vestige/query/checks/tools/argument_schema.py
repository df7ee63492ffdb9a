"""Validate arguments against a tool's JSON Schema.

Supported are the keywords that tools use: type, required, enum, properties, items, const, bounds,
additionalProperties, anyOf, oneOf, allOf, and `$ref` within the schema. Unknown keywords are
ignored: a false positive costs more than a miss.

    find_problem({"required": ["city"]}, {})  ->  "city is required and missing"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DEPTH_MAX = 30

_STEPS_MAX = 10_000
"""Subschemas that are tried for one value: recursive branches grow exponentially."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(slots=True)
class _Root:
    """The root schema for `$ref`, and the remaining steps."""

    schema: Any
    steps_left: int = _STEPS_MAX


def find_problem(schema: Any, value: Any) -> str | None:
    """Return the first violation as text, or None if the value is valid."""
    return _find(schema, value, "", _Root(schema), 0)


def _find(schema: Any, value: Any, at: str, root: _Root, depth: int) -> str | None:
    root.steps_left -= 1
    schema = _resolved(schema, root.schema)
    if not isinstance(schema, dict) or depth > _DEPTH_MAX or root.steps_left < 0:
        return None
    where = at or "the arguments"
    if not _is_of_type(schema, value):
        return f"{where} should be {_expected(schema)}, but is {_type_name(value)}"
    may_be_null = value is None and schema.get("nullable") is True
    if isinstance(schema.get("enum"), list) and value not in schema["enum"] and not may_be_null:
        return f"{where} is {_short(value)}, not one of {_short(schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is {_short(value)}, but should be {_short(schema['const'])}"
    return (
        _out_of_bounds(schema, value, where)
        or _in_object(schema, value, at, root, depth)
        or _in_array(schema, value, at, root, depth)
        or _in_branches(schema, value, at, root, depth)
    )


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(_DEPTH_MAX):
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(ref, str):
            return schema
        if not ref.startswith("#/"):
            return None
        schema = root
        for part in ref[2:].split("/"):
            schema = schema.get(part) if isinstance(schema, dict) else None
    return None


def _names(schema: dict[str, Any]) -> list[str]:
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    names = [name.lower() for name in types if isinstance(name, str)]  # Gemini writes STRING
    return [*names, "null"] if names and schema.get("nullable") is True else names


def _is_of_type(schema: dict[str, Any], value: Any) -> bool:
    names = _names(schema)
    if not names or any(name not in _TYPES for name in names):
        return True
    return any(_is(name, value) for name in names)


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _in_object(schema: dict[str, Any], value: Any, at: str, root: _Root, depth: int) -> str | None:
    if not isinstance(value, dict):
        return None
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            return f"{_join(at, name)} is required and missing"
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in value:
            if name not in properties:
                return f"{_join(at, name)} is not a parameter of the tool"
    for name, inner in properties.items():
        if name in value:
            problem = _find(inner, value[name], _join(at, name), root, depth + 1)
            if problem is not None:
                return problem
    return None


def _in_array(schema: dict[str, Any], value: Any, at: str, root: _Root, depth: int) -> str | None:
    if not isinstance(value, list) or not isinstance(schema.get("items"), dict):
        return None
    for index, item in enumerate(value):
        problem = _find(schema["items"], item, f"{at}[{index}]", root, depth + 1)
        if problem is not None:
            return problem
    return None


def _in_branches(
    schema: dict[str, Any], value: Any, at: str, root: _Root, depth: int
) -> str | None:
    for branch in _branches(schema, "allOf"):
        problem = _find(branch, value, at, root, depth + 1)
        if problem is not None:
            return problem
    for keyword in ("anyOf", "oneOf"):
        branches = _branches(schema, keyword)
        problems = [_find(branch, value, at, root, depth + 1) for branch in branches]
        if problems and all(problems):
            if len(problems) == 1:
                return problems[0]
            return f"{at or 'the arguments'} does not match any schema of {keyword}"
    return None


def _branches(schema: dict[str, Any], keyword: str) -> list[Any]:
    branches = schema.get(keyword)
    return branches if isinstance(branches, list) else []


def _out_of_bounds(schema: dict[str, Any], value: Any, where: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, (int, float)) and value < low:
        return f"{where} is {value}, below {low}"
    if isinstance(high, (int, float)) and value > high:
        return f"{where} is {value}, above {high}"
    return None


def _expected(schema: dict[str, Any]) -> str:
    return " or ".join(_names(schema))


def _type_name(value: Any) -> str:
    names = ("boolean", "integer", "number", "string", "object", "array", "null")
    return next((name for name in names if _is(name, value)), "something else")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _join(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)
