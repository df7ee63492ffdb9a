"""OpenAPI operations of the OpenWOP routes."""

from __future__ import annotations

from typing import Any, Final


def _parameter(name: str, kind: str, description: str, **more: Any) -> dict[str, Any]:
    schema = {"type": kind, **more}
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    summary: str, required: list[str], *parameters: dict[str, Any], status: str = "200", **more: Any
) -> dict[str, Any]:
    response = {"type": "object", "required": required}
    return {
        "summary": summary,
        "tags": ["openwop"],
        "parameters": list(parameters),
        "responses": {status: {"description": "Done.", "content": _json(response)}, **_OFF},
        **more,
    }


_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_OFF: Final = {
    "409": {
        "description": "The mode is passthrough, and the run contains sensitive data.",
        "content": _json(_ERROR),
    },
    "501": {"description": "This host does not offer that.", "content": _json(_ERROR)},
}
_COUNT: Final = {"minimum": 0, "maximum": 10**18 - 1}

DISCOVERY: Final = _operation(
    "Capabilities of this host.",
    ["protocolVersion", "supportedEnvelopes", "schemaVersions", "limits"],
)
LIST: Final = _operation(
    "Runs, newest first.",
    ["runs"],
    _parameter("limit", "integer", "Maximum number of runs.", **_COUNT),
    _parameter("after", "string", "Only runs older than this run id.", minLength=1),
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
GET: Final = _operation("A run's current state.", ["runId", "workflowId", "status"])
POLL: Final = _operation(
    "New events of a run.",
    ["events", "isComplete"],
    _parameter(
        "lastSequence",
        "integer",
        "Sequence number of the last known event; -1: none.",
        minimum=-1,
        maximum=10**18 - 1,
    ),
    _parameter("timeout", "integer", "Seconds to wait for new events.", **_COUNT),
)
BUNDLE: Final = _operation(
    "A complete run in one document.",
    ["bundleVersion", "generatedAt", "host", "run", "events", "redactionApplied", "redactionMode"],
    _parameter("maxEvents", "integer", "Maximum number of events.", **_COUNT),
    _parameter("host.vestige.maxEvents", "integer", "Full name of maxEvents.", **_COUNT),
) | {"x-vestige-scope": "debug-bundle:read"}
ANNOTATIONS: Final = _operation("Annotations of a run.", ["annotations"]) | {
    "x-vestige-scope": "runs:read"
}
ANNOTATE: Final = _operation(
    "Annotate a run.",
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
