"""OTLP/gRPC: the Export calls of OpenTelemetry exporters, answered by the routes of OTLP/HTTP.

    endpoint = GrpcEndpoint(app, "127.0.0.1", 4317)
    await endpoint.start()

A call becomes a request to /v1/traces, /v1/logs or /v1/metrics of the application in this process.
So keys, limits, rates and the access log are the same for both transports, and a response is sent
when the data is durable. It needs the package `grpcio` (`pip install 'vestige[otlp]'`).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp, Message

from vestige.errors import UsageError
from vestige.limits import GRPC_CALLS_MAX, GRPC_SHUTDOWN_S, PARCEL_PACKED_MAX

_METHODS: Final = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "/v1/traces",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "/v1/logs",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "/v1/metrics",
}
_CODES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    408: "UNAVAILABLE",
    413: "INVALID_ARGUMENT",
    415: "UNIMPLEMENTED",
    422: "INVALID_ARGUMENT",
    429: "UNAVAILABLE",
    503: "UNAVAILABLE",
}
"""gRPC codes by HTTP status. OTLP exporters retry UNAVAILABLE; they give up on the others."""


def is_installed() -> bool:
    return find_spec("grpc") is not None


@dataclass(slots=True)
class _Reply:
    status: int = 500
    body: bytearray = field(default_factory=bytearray)


class GrpcEndpoint:
    """A gRPC server in the event loop of the HTTP server."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        name: str = "localhost",
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._app = app
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._name = name.encode()
        """A host name that the application serves."""
        self._tls = None if cert is None or key is None else (key.read_bytes(), cert.read_bytes())
        self._server: Any = None

    async def start(self) -> None:
        """Listen on the port. Raises UsageError if it is in use."""
        import grpc

        endpoint = self

        class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is untyped
            def service(self, details: Any) -> Any:
                path = _METHODS.get(details.method)
                if path is None:
                    return None

                async def export(data: bytes, context: Any) -> bytes:
                    return await endpoint._export(path, data, context)

                return grpc.unary_unary_rpc_method_handler(export)

        self._server = grpc.aio.server(
            handlers=(Handler(),),
            maximum_concurrent_rpcs=GRPC_CALLS_MAX,
            options=[
                ("grpc.so_reuseport", 0),  # two servers on one port would share its calls
                ("grpc.max_receive_message_length", PARCEL_PACKED_MAX),
            ],
        )
        try:
            if self._tls is None:
                self._server.add_insecure_port(self._address)
            else:
                credentials = grpc.ssl_server_credentials((self._tls,))
                self._server.add_secure_port(self._address, credentials)
        except RuntimeError:
            raise UsageError(
                f"{self._address}: cannot listen for OTLP/gRPC. Free the port, or serve without"
                " --otlp."
            ) from None
        await self._server.start()

    async def stop(self) -> None:
        """Refuse new calls, and wait a moment for those that run."""
        if self._server is not None:
            await self._server.stop(GRPC_SHUTDOWN_S)

    async def _export(self, path: str, data: bytes, context: Any) -> bytes:
        import grpc

        reply = await self._request(path, data, dict(context.invocation_metadata()))
        if reply.status == 200:
            return bytes(reply.body)
        code = getattr(grpc.StatusCode, _CODES.get(reply.status, "INTERNAL"))
        await context.abort(code, _message(reply))
        raise AssertionError("abort raises")

    async def _request(self, path: str, data: bytes, metadata: dict[str, Any]) -> _Reply:
        """Call the application with one request, and return its response."""
        headers = [
            (b"host", self._name),
            (b"content-type", b"application/x-protobuf"),
            (b"content-length", str(len(data)).encode()),
        ]
        if isinstance(authorization := metadata.get("authorization"), str):
            headers.append((b"authorization", authorization.encode("latin-1", "replace")))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": "POST",
            "scheme": "http" if self._tls is None else "https",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": None,
        }
        incoming: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]
        reply = _Reply()

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await asyncio.Event().wait()  # a disconnect would cancel the request
            raise AssertionError("the event is never set")

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
            elif message["type"] == "http.response.body":
                reply.body += message.get("body", b"")

        await self._app(scope, receive, send)
        return reply


def _message(reply: _Reply) -> str:
    try:
        return str(json.loads(bytes(reply.body))["message"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered with status {reply.status}."
