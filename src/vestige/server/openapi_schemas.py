"""Response schemas of the API for the OpenAPI document: the stable keys of each verb.

A key that ends with `?` may be missing; a type that ends with `?` may be null. A test compares
this table with real responses.
"""

from __future__ import annotations

from typing import Any

from vestige.query.command_tools import Parameter, Tool

SHAPES: dict[str, dict[str, str]] = {
    "doctor": {
        "home": "string", "store": "string", "store_bytes": "integer", "runs": "integer",
        "spans": "integer", "logs": "integer", "bodies": "integer", "body_bytes": "integer",
        "journal_files": "integer", "journal_bytes": "integer", "lag_bytes": "integer",
        "collecting": "boolean", "writers_alive": "integer", "writers_dead": "integer",
        "captures_dead": "integer", "dropped": "integer", "missing": "integer",
        "malformed": "integer", "scanner": "string", "retention_age_s": "number",
        "retention_body_bytes": "integer", "problems": "array",
    },
    "list": {"runs": "array", "next": "string?", "more": "boolean", "looked_at": "integer?"},
    "overview": {
        "run": "object", "types": "object", "findings": "array", "passed": "array",
        "cost_usd": "number?", "good_run": "object?", "stamps": "array",
        "common_attributes": "object",
    },
    "check": {
        "run_id": "string",
        "findings": "array",
        "passed": "array",
        "not_applicable": "array",
        "failed": "object",
    },
    "why": {"chain": "array", "others": "array"},
    "notes": {"run_id": "string", "notes": "array"},
    "show": {"run": "object", "spans": "array", "logs": "array", "next": "integer?"},
    "transcript": {"run": "object", "items": "array", "next": "string?"},
    "outline": {
        "run": "object", "base_us": "integer", "strings": "array", "spans": "object",
        "logs": "object", "links": "array", "losses": "object", "next": "string", "more": "boolean",
    },
    "segments": {
        "span": "string", "basis": "string", "ranges": "string?", "request_bytes": "integer?",
        "covered_bytes": "integer", "segments": "array", "segments_left_out": "integer",
        "contributors": "array", "cache": "object",
    },
    "state": {
        "run": "object", "snapshots": "array", "snapshot": "object?", "diff": "object?",
        "next": "integer?",
    },
    "files": {
        "run": "object", "at_us": "integer?", "files": "array", "later": "integer",
        "left_out": "integer",
    },
    "span": {
        "run_id": "string", "span": "object", "parent": "string?", "children": "array",
        "linked_from": "array", "logs": "array", "previews": "object", "cost_usd": "number?",
        "edits": "array",
    },
    "body": {
        "span_id": "string", "short_id": "string", "which": "string", "path": "string?",
        "size_bytes": "integer", "start": "integer", "end": "integer", "next": "integer?",
        "note": "string?", "encoding": "string", "text": "string",
    },
    "grep": {"hits": "array", "next": "string?"},
    "diff": {"differs": "boolean", "kind": "string", "a": "string", "b": "string"},
    "stats": {"by": "string", "since_day": "string?", "rows": "array", "ranking": "object?"},
    "trends": {
        "by": "string", "since": "string", "buckets": "array", "totals": "object",
        "priced": "boolean", "unpriced_models": "array", "tools": "object",
    },
    "groups": {
        "examined": "integer", "unexamined": "integer", "more": "boolean", "groups": "array",
    },
    "compare": {
        "a": "array", "b": "array", "a_given": "integer", "b_given": "integer",
        "separations": "array",
    },
    "sql": {"columns": "array", "rows": "array", "next": "integer?"},
    "schema": {
        "store_version": "integer", "tables": "array", "views": "array", "examples": "array",
    },
    "help": {
        "component": "string", "text": "string?", "span_types": "array", "queries": "object",
    },
}  # fmt: skip


def answer_schema(verb: str) -> dict[str, Any]:
    """Return the schema of a verb's data. Later versions may add keys; these stay."""
    keys = {"version": "integer", **SHAPES[verb]}
    return {
        "type": "object",
        "required": [key for key in keys if not key.endswith("?")],
        "properties": {key.rstrip("?"): _type(kind) for key, kind in keys.items()},
    }


def _type(kind: str) -> dict[str, Any]:
    return {"type": [kind[:-1], "null"]} if kind.endswith("?") else {"type": kind}


def verb_operation(tool: Tool) -> dict[str, Any]:
    """Return a verb's part of the OpenAPI document."""
    response_format = {
        "name": "format",
        "in": "query",
        "description": "json, or text within a budget.",
        "schema": {"type": "string", "enum": ["json", "text"], "default": "json"},
    }
    return {
        "operationId": tool.name,
        "summary": tool.gives,
        "description": f"Use when: {tool.use} Do not use: {tool.avoid}",
        "parameters": [*map(_parameter, tool.all_parameters), response_format],
        "responses": {
            "200": {
                "description": tool.gives,
                "headers": {
                    "ETag": {"schema": {"type": "string"}},
                    "Link": {
                        "description": "The next page, if there is one.",
                        "schema": {"type": "string"},
                    },
                },
                "content": {
                    "application/json": {"schema": answer_schema(tool.name)},
                    "text/plain": {"schema": {"type": "string"}},
                },
            },
            "304": {"description": "Not modified (If-None-Match)."},
        },
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = parameter.schema()
    description = schema.pop("description")
    data: dict[str, Any] = {"name": parameter.name, "in": "query", "description": description}
    if parameter.required:
        data["required"] = True
    if parameter.kind == "array":
        data |= {"style": "form", "explode": True}
        schema["minItems"] = 1
    return {**data, "schema": schema}
