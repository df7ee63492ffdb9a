"""/api/v1/reproduce: render a recorded request as curl or a program ("Copy as cURL")."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.query.reproduce.request import FORMATS
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, encode
from vestige.server.server_state import Server

PATH = "/api/v1/reproduce"
ID_MAX = 200
"""Maximum length in characters. A span's id is far shorter."""


def routes(server: Server) -> list[BaseRoute]:
    async def reproduce(request: Request) -> Response:
        query = request.query_params
        span, language = query.get("id", ""), query.get("language", "curl")
        if query.keys() - {"id", "language"} or not span or len(span) > ID_MAX:
            raise UsageError(
                "reproduce: invalid arguments (expected id, e.g. r7.s12, and language)."
            )
        if language not in FORMATS:
            raise UsageError(f"reproduce: unknown language (expected {', '.join(FORMATS)}).")
        return await server.in_thread(_respond, server, principal(request), span, language)

    return [GuardedRoute(PATH, reproduce, scope="runs:read", operation=_OPERATION)]


def _respond(server: Server, caller: Principal, span: str, language: str) -> Response:
    with server.open_debugger(caller) as debugger:
        text = debugger.reproduce(span, language)
    body = encode({"version": 1, "language": language, "text": text})
    headers = {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, headers=headers)


_OPERATION: dict[str, Any] = {
    "operationId": "reproduce",
    "summary": "A recorded request as a program that sends it again. Secrets become variables.",
    "parameters": [
        {
            "name": "id", "in": "query", "required": True, "description": "A span: r7.s12.",
            "schema": {"type": "string", "minLength": 1, "maxLength": ID_MAX},
        },
        {
            "name": "language", "in": "query", "description": "The language of the program.",
            "schema": {"type": "string", "enum": list(FORMATS), "default": "curl"},
        },
    ],
    "responses": {
        "200": {
            "description": "The program.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["version", "language", "text"],
                        "properties": {
                            "version": {"type": "integer"},
                            "language": {"type": "string"},
                            "text": {"type": "string"},
                        },
                    }
                }
            },
        }
    },
}  # fmt: skip
