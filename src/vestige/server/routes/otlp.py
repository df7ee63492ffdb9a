"""OTLP/HTTP: traces and logs from OpenTelemetry exporters and collectors.

    POST /v1/traces, /v1/logs       application/json or application/x-protobuf; gzip, zstd or none
    200 {}                          or {"partialSuccess": {...}} with the rejected part

The data passes through the same queue as shipped journals (server/routes/ingest.py), with the
same keys, rates and limits, and the response is sent when it is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from vestige.fleet.server.ingest_process import Reply
from vestige.formats.otlp.protobuf import PACKAGE, encode_response, is_installed
from vestige.limits import PARCEL_PACKED_MAX
from vestige.server.auth import Endpoint, GuardedRoute
from vestige.server.responses import NO_STORE, ApiError, encode
from vestige.server.routes.openapi import error

Ingest = Callable[[Request, str], Awaitable[Reply]]

_ENCODINGS: Final = {"application/json": "json", "application/x-protobuf": "protobuf"}
_REJECTED: Final = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}


def routes(ingest: Ingest) -> list[GuardedRoute]:
    return [
        GuardedRoute(
            f"/v1/{signal}",
            _make_endpoint(ingest, signal),
            scope="runs:write",
            methods=("POST",),
            body_max=PARCEL_PACKED_MAX,
            operation=_operation(signal),
        )
        for signal in _REJECTED
    ]


def _make_endpoint(ingest: Ingest, signal: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = _ENCODINGS.get(kind)
        if encoding is None:
            raise ApiError(
                415, "unsupported_type", f"Content-Type: expected {' or '.join(_ENCODINGS)}."
            )
        if encoding == "protobuf" and not is_installed():
            raise ApiError(
                415,
                "unsupported_type",
                f"Content-Type {kind}: the server lacks the package {PACKAGE} to read it. Install"
                " it there (pip install 'vestige[otlp]'), or send JSON (http/json).",
            )
        reply = await ingest(request, f"otlp-{signal}-{encoding}")
        return _render_response(reply, signal, encoding, kind)

    return endpoint


def _render_response(reply: Reply, signal: str, encoding: str, kind: str) -> Response:
    headers = {"content-type": kind, "cache-control": NO_STORE}
    if encoding == "protobuf":
        return Response(encode_response(reply.malformed, reply.message), headers=headers)
    if not reply.malformed:
        return Response(b"{}", headers=headers)
    partial = {_REJECTED[signal]: str(reply.malformed), "errorMessage": reply.message}
    return Response(encode({"partialSuccess": partial}), headers=headers)


def _operation(signal: str) -> dict[str, Any]:
    outer = {"traces": "resourceSpans", "logs": "resourceLogs"}[signal]
    request = {"type": "object", "properties": {outer: {"type": "array"}}}
    partial = {
        "type": "object",
        "properties": {_REJECTED[signal]: {"type": "string"}, "errorMessage": {"type": "string"}},
    }
    response = {"type": "object", "properties": {"partialSuccess": partial}}
    return {
        "operationId": f"otlp_{signal}",
        "summary": f"Ingest OpenTelemetry {signal} (OTLP/HTTP)",
        "description": "Responds when they are durable. Sending them again changes nothing.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {
                "description": "Stored, except for the items counted in `partialSuccess`.",
                "content": {"application/json": {"schema": response}},
            },
            "415": error("Unknown Content-Type or Content-Encoding."),
        },
    }
