"""/api/v1/lineage: the origin of a run, its forks, and the command that forks it again."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, encode
from vestige.server.server_state import Server

PATH = "/api/v1/lineage"
ID_MAX = 200
"""Maximum length in characters. A run's id is far shorter."""


def routes(server: Server) -> list[BaseRoute]:
    async def lineage(request: Request) -> Response:
        run = request.query_params.get("id", "")
        if request.query_params.keys() - {"id"} or not run or len(run) > ID_MAX:
            raise UsageError("lineage: invalid arguments (expected id, e.g. r7).")
        return await server.in_thread(_respond, server, principal(request), run)

    return [GuardedRoute(PATH, lineage, scope="runs:read", operation=_OPERATION)]


def _respond(server: Server, caller: Principal, run: str) -> Response:
    with server.open_debugger(caller) as debugger:
        body = encode(debugger.family(run).data())
    headers = {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, headers=headers)


_TEXT: dict[str, Any] = {"type": "string"}
_OPTIONAL: dict[str, Any] = {"type": ["string", "null"]}
_OPERATION: dict[str, Any] = {
    "operationId": "lineage",
    "summary": "The run that a run was replayed or forked from, and the runs forked from it.",
    "parameters": [
        {
            "name": "id", "in": "query", "required": True, "description": "A run: r7.",
            "schema": {"type": "string", "minLength": 1, "maxLength": ID_MAX},
        },
    ],
    "responses": {
        "200": {
            "description": "Origin and forks.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": [
                            "version", "run", "origin", "live_from", "changes", "forks",
                            "command", "can_fork",
                        ],
                        "properties": {
                            "version": {"type": "integer"},
                            "run": _TEXT,
                            "origin": {
                                "type": ["object", "null"],
                                "required": ["run", "run_id", "forked_at", "forked_at_id"],
                                "properties": {
                                    "run": _TEXT,
                                    "run_id": _TEXT,
                                    "forked_at": _OPTIONAL,
                                    "forked_at_id": _OPTIONAL,
                                },
                            },
                            "live_from": _OPTIONAL,
                            "changes": {"type": "array", "items": _TEXT},
                            "forks": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": [
                                        "run", "name", "outcome", "started_at", "forked_at",
                                        "changes",
                                    ],
                                    "properties": {
                                        "run": _TEXT,
                                        "name": _TEXT,
                                        "outcome": _TEXT,
                                        "started_at": _TEXT,
                                        "forked_at": _OPTIONAL,
                                        "changes": {"type": "array", "items": _TEXT},
                                    },
                                },
                            },
                            "command": _OPTIONAL,
                            "can_fork": {"type": "boolean"},
                        },
                    }
                }
            },
        }
    },
}  # fmt: skip
