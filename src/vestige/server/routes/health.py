"""/healthz (liveness) and /instance (whose server this is). Neither needs a key."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.server.auth import GuardedRoute
from vestige.server.responses import NO_STORE, ApiError, encode
from vestige.server.server_state import LOCAL, Server
from vestige.server.viewer_instance import NONCE_MAX, PROOF_PATH, prove


def routes(server: Server) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        await server.in_thread(_check_store, server)  # an unreadable store is a 503
        headers = {"content-type": "application/json", "cache-control": NO_STORE}
        return Response(encode({"status": "ok"}), headers=headers)

    async def instance(request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if server.token is None or not 0 < len(nonce) <= NONCE_MAX:
            raise ApiError(404, "not_found", "There is nothing at this path.")
        headers = {"content-type": "application/json", "cache-control": NO_STORE}
        return Response(encode({"proof": prove(server.token, nonce)}), headers=headers)

    return [
        GuardedRoute(PROOF_PATH, instance, public=True),
        GuardedRoute("/healthz", healthz, public=True, operation=_HEALTHZ),
    ]


def _check_store(server: Server) -> None:
    with server.open_debugger(LOCAL) as debugger:
        debugger.store.has_run("")


_HEALTHZ: dict[str, Any] = {
    "summary": "Check that the server runs and can read its store.",
    "responses": {
        "200": {
            "description": "The server runs and can read its store.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["status"],
                        "properties": {"status": {"const": "ok"}},
                        "additionalProperties": False,
                    }
                }
            },
        }
    },
}
