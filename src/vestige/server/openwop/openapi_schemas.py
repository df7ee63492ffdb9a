"""The OpenWOP routes in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final


def _parameter(name: str, kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": meaning, "schema": {"type": kind, **more}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    summary: str, required: list[str], *parameters: dict[str, Any], status: str = "200", **more: Any
) -> dict[str, Any]:
    answer = {"type": "object", "required": required}
    return {
        "summary": summary,
        "tags": ["openwop"],
        "parameters": list(parameters),
        "responses": {status: {"description": "Done.", "content": _json(answer)}, **_OFF},
        **more,
    }


_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_OFF: Final = {
    "409": {
        "description": "Passthrough, and there is something to hide.",
        "content": _json(_ERROR),
    },
    "501": {"description": "This host does not offer that.", "content": _json(_ERROR)},
}
_COUNT: Final = {"minimum": 0, "maximum": 10**18 - 1}

DISCOVERY: Final = _operation(
    "What this host can do.", ["protocolVersion", "supportedEnvelopes", "schemaVersions", "limits"]
)
LIST: Final = _operation(
    "Runs, newest first.",
    ["runs"],
    _parameter("limit", "integer", "How many.", **_COUNT),
    _parameter("after", "string", "A run's id: those older than it.", minLength=1),
)
CREATE: Final = _operation(
    "Start a demo workflow.",
    ["runId", "status", "eventsUrl"],
    status="201",
    requestBody={
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["workflowId"],
                "properties": {
                    "workflowId": {"type": "string", "minLength": 1},
                    "inputs": {"type": ["object", "null"]},
                },
            }
        ),
    },
)
GET: Final = _operation("A run as it stands.", ["runId", "workflowId", "status"])
POLL: Final = _operation(
    "The events of a run after one of them.",
    ["events", "isComplete"],
    _parameter(
        "lastSequence",
        "integer",
        "The last that is known; -1: none.",
        minimum=-1,
        maximum=10**18 - 1,
    ),
    _parameter("timeout", "integer", "Seconds to wait when there is nothing new.", **_COUNT),
)
BUNDLE: Final = _operation(
    "Everything about a run in one document.",
    ["bundleVersion", "generatedAt", "host", "run", "events", "redactionApplied", "redactionMode"],
    _parameter("maxEvents", "integer", "Lowers the cap.", **_COUNT),
    _parameter("host.vestige.maxEvents", "integer", "The same, by its full name.", **_COUNT),
) | {"x-vestige-scope": "debug-bundle:read"}
ANNOTATIONS: Final = _operation("What was said of a run.", ["annotations"]) | {
    "x-vestige-scope": "runs:read"
}
ANNOTATE: Final = _operation(
    "Say something of a run.",
    ["annotationId", "target", "signal", "actor", "createdAt"],
    status="201",
    requestBody={
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["signal"],
                "properties": {
                    "target": {
                        "type": "object",
                        "properties": {"eventId": {"type": "string"}, "nodeId": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    "signal": {
                        "type": "object",
                        "required": ["kind"],
                        "properties": {
                            "kind": {
                                "type": "string",
                                "enum": ["rating", "correction", "label", "flag"],
                            },
                            "rating": {"type": "integer", "minimum": 1, "maximum": 5},
                            "label": {"type": "string"},
                            "correction": {"type": "string"},
                        },
                        "additionalProperties": False,
                    },
                    "note": {"type": "string"},
                },
                "additionalProperties": False,
            }
        ),
    },
) | {"x-vestige-scope": "runs:write"}
