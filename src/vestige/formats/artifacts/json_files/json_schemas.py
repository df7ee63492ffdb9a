"""JSON Schemas of the typed files, made from their structs: for other tools, and for
formats/artifacts/json_files/schema_check.py.

    schema_of(Summary)             as it is published in schemas/artifacts/summary.schema.json
    bundle_schema()                `bundle.json`: with the references that it must have

`x-rule` names the rule of validation_rules.py that a value breaks; other validators ignore it.
Rules that a schema cannot express (hashes of files, equal suites) are in
formats/artifacts/validate.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from vestige.formats.artifacts import constants, file_structs

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


@cache
def schema_of(struct: Any) -> Schema:
    """Return the schema of a struct without `$ref`, which is small and easy to walk."""
    (schema,), definitions = msgspec.json.schema_components((struct,))
    found: Schema = _inlined(schema, definitions)
    return found


@cache
def bundle_schema(later: bool = False) -> Schema:
    """Return the schema of `bundle.json`; `later`: for the profile `latest`."""
    schema = schema_of(file_structs.Bundle)
    properties = dict(schema["properties"])
    identity = properties["schema"]
    pinned = {
        "name": _constant(file_structs.SCHEMA_NAME, "schema-name"),
        "major": _constant(file_structs.SCHEMA_MAJOR, "schema-major"),
    }
    properties["schema"] = {**identity, "properties": {**identity["properties"], **pinned}}
    properties["artifacts"] = _sections(constants.refs(), "ref-missing")
    if later:
        extra = _sections(
            {name: ref for name, ref in constants.refs(True).items() if name in _LATER_SECTIONS},
            "later-ref-missing",
        )
        properties["artifacts"] = {
            **properties["artifacts"],
            "x-also": extra,  # a rule of its own for what is missing
        }
    return {**schema, "properties": properties}


@cache
def trace_schema(versions: tuple[int, ...] = (1,)) -> Schema:
    """Return the schema of one line of trace/events.jsonl."""
    schema = schema_of(file_structs.TraceEvent)
    version = {"type": "integer", "enum": list(versions), "x-rule": "trace-schema-version"}
    return {**schema, "properties": {**schema["properties"], "schema_version": version}}


def published() -> dict[str, Schema]:
    """Return the schemas of schemas/artifacts/ by file name."""
    found = {"bundle": bundle_schema()}
    for part in (*constants.PARTS, *constants.LATER_PARTS):
        if part.type is not None:
            assert part.schema is not None
            name = part.schema.partition(".")[0]
            found[name] = trace_schema() if part.path == constants.TRACE else schema_of(part.type)
    return {
        f"{name}.schema.json": {"$schema": DIALECT, **_sorted_titles(schema)}
        for name, schema in found.items()
    }


_LATER_SECTIONS: Final = frozenset(part.section[0] for part in constants.LATER_PARTS)


def _sections(sections: dict[str, Any], missing: str) -> Schema:
    properties = {
        name: _reference(value) if "path" in value else _sections(value, missing)
        for name, value in sections.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "x-rule-required": missing,
    }


def _reference(ref: dict[str, str]) -> Schema:
    properties = {name: _constant(value, f"ref-{name}") for name, value in ref.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _constant(value: str | int, rule: str) -> Schema:
    kind = "integer" if isinstance(value, int) else "string"
    return {"type": kind, "const": value, "x-rule": rule}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items()}


def _sorted_titles(schema: Schema) -> Schema:
    """Put the title first, for readers."""
    first: Schema = {key: schema[key] for key in ("title", "description") if key in schema}
    return {**first, **schema}
