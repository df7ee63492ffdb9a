"""OTLP/HTTP: what OpenTelemetry's exporters and collectors send becomes runs.

    POST /v1/traces, /v1/logs       application/json or application/x-protobuf; gzip, zstd or none
    200 {}                          or {"partialSuccess": {...}}: some of it was not taken, and why

Taken in the way shipped journals are (server/routes/ingest.py): by the same desk, with the same keys, rates and
bounds, and answered when it is durable. Errors are answered as everywhere here.
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

HandIn = Callable[[Request, str], Awaitable[Reply]]

_ENCODINGS: Final = {"application/json": "json", "application/x-protobuf": "protobuf"}
_REJECTED: Final = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}


def doors(hand_in: HandIn) -> list[GuardedRoute]:
    return [
        GuardedRoute(
            f"/v1/{signal}",
            _taking(hand_in, signal),
            scope="runs:write",
            methods=("POST",),
            body_max=PARCEL_PACKED_MAX,
            operation=_operation(signal),
        )
        for signal in _REJECTED
    ]


def _taking(hand_in: HandIn, signal: str) -> Endpoint:
    async def take(request: Request) -> Response:
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
                f"Content-Type {kind}: the server needs the package {PACKAGE} to read it. Install"
                " it there (pip install 'vestige[otlp]'), or send JSON (http/json).",
            )
        reply = await hand_in(request, f"otlp-{signal}-{encoding}")
        return _answer(reply, signal, encoding, kind)

    return take


def _answer(reply: Reply, signal: str, encoding: str, kind: str) -> Response:
    headers = {"content-type": kind, "cache-control": NO_STORE}
    if encoding == "protobuf":
        return Response(encode_response(reply.malformed, reply.message), headers=headers)
    if not reply.malformed:
        return Response(b"{}", headers=headers)
    told = {_REJECTED[signal]: str(reply.malformed), "errorMessage": reply.message}
    return Response(encode({"partialSuccess": told}), headers=headers)


def _operation(signal: str) -> dict[str, Any]:
    outer = {"traces": "resourceSpans", "logs": "resourceLogs"}[signal]
    request = {"type": "object", "properties": {outer: {"type": "array"}}}
    partial = {
        "type": "object",
        "properties": {_REJECTED[signal]: {"type": "string"}, "errorMessage": {"type": "string"}},
    }
    answer = {"type": "object", "properties": {"partialSuccess": partial}}
    return {
        "operationId": f"otlp_{signal}",
        "summary": f"Take in {signal} of OpenTelemetry (OTLP/HTTP)",
        "description": "Answered when they are durable. Sending again what was sent changes nothing.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {
                "description": "They are kept; `partialSuccess` tells of those that are not.",
                "content": {"application/json": {"schema": answer}},
            },
            "415": error("A Content-Type or Content-Encoding that is not known."),
        },
    }
