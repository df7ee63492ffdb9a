"""OTLP/HTTP: traces and logs from OpenTelemetry exporters and collectors.

    POST /v1/traces, /v1/logs       application/json or application/x-protobuf; gzip, zstd or none
    200 {}                          or {"partialSuccess": {...}} with the rejected part
    POST /v1/metrics, ...           200 {}: other signals are read and not recorded

The data passes through the same queue as shipped journals (server/routes/ingest.py), with the
same keys, rates and limits, and the response is sent when it is durable. Exporters that are set up
for all signals report an error at every export if one is refused, so the others are accepted.
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


_NOT_RECORDED: Final = {
    "/v1/metrics": "metrics",
    "/v1development/profiles": "profiles",
}


def routes(ingest: Ingest) -> list[GuardedRoute]:
    recorded = [
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
    dropped = [
        GuardedRoute(
            path,
            _make_dropping_endpoint(signal),
            scope="runs:write",
            methods=("POST",),
            body_max=PARCEL_PACKED_MAX,
            operation=_dropping_operation(signal),
        )
        for path, signal in _NOT_RECORDED.items()
    ]
    return [*recorded, *dropped]


def _make_endpoint(ingest: Ingest, signal: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        kind = _content_type(request)
        encoding = _ENCODINGS.get(kind)
        if encoding is None:
            expected = " or ".join(_ENCODINGS)
            raise _unsupported(request, f"Content-Type: expected {expected}.")
        if encoding == "protobuf" and not is_installed():
            raise _unsupported(
                request,
                f"Content-Type {kind}: the server lacks the package {PACKAGE} to read it. Install"
                " it there (pip install 'vestige[otlp]'), or send JSON (http/json).",
            )
        reply = await ingest(request, f"otlp-{signal}-{encoding}")
        return _render_response(reply, signal, encoding, kind)

    return endpoint


def _make_dropping_endpoint(signal: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        async for _ in request.stream():
            pass
        request.state.message = f"OpenTelemetry {signal} are not recorded."
        if _ENCODINGS.get(_content_type(request)) == "protobuf":
            return _render_empty(b"", "application/x-protobuf")
        return _render_empty(b"{}", "application/json")

    return endpoint


def _render_empty(body: bytes, kind: str) -> Response:
    return Response(body, headers={"content-type": kind, "cache-control": NO_STORE})


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported(request: Request, message: str) -> ApiError:
    # Exporters print the status only, so the server's log has the reason as well.
    request.state.message = message
    return ApiError(415, "unsupported_type", message)


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


def _dropping_operation(signal: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": f"otlp_{signal}",
        "summary": f"Accept OpenTelemetry {signal} without recording them",
        "description": "Exporters that send all signals would report an error at every export.",
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "Accepted and dropped.", "content": content}},
    }
