"""/api/v1/same_task: other runs of a run's task, for the viewer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.server.auth import GuardedRoute, principal
from vestige.server.openapi_schemas import answer_schema
from vestige.server.responses import NO_STORE, compress, encode
from vestige.server.server_state import Server

PATH = "/api/v1/same_task"
ID_MAX = 200
"""Maximum length in characters. A run's id is far shorter."""


def routes(server: Server) -> list[BaseRoute]:
    async def same_task(request: Request) -> Response:
        query = request.query_params
        run = query.get("id", "")
        if query.keys() - {"id"} or not run or len(run) > ID_MAX:
            raise UsageError("same_task: invalid arguments (expected id, e.g. r7).")
        accepted = request.headers.get("accept-encoding", "")
        return await server.in_thread(_respond, server, principal(request), run, accepted)

    return [GuardedRoute(PATH, same_task, scope="runs:read", operation=_OPERATION)]


def _respond(server: Server, caller: Principal, run: str, accepted: str) -> Response:
    with server.open_debugger(caller) as debugger:
        data = debugger.same_task(run).data()
    body, headers = compress(encode(data), accepted)
    base = {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, headers={**base, **headers})


_OPERATION: dict[str, Any] = {
    "operationId": "same_task",
    "summary": "Other runs of the same task, newest first, in the form of `list`.",
    "parameters": [
        {
            "name": "id", "in": "query", "required": True, "description": "A run: r7.",
            "schema": {"type": "string", "minLength": 1, "maxLength": ID_MAX},
        },
    ],
    "responses": {
        "200": {
            "description": "The runs.",
            "content": {"application/json": {"schema": answer_schema("list")}},
        }
    },
}  # fmt: skip
