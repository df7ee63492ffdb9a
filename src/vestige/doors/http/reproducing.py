"""GET /api/v1/reproduce: a recorded request as a program that sends it again.

Elsewhere: the programs in query/reproduce.py; on the command line it is `vestige export SPAN --format curl`.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.access import Principal
from vestige.doors.http.answers import PRIVATE, encode
from vestige.doors.http.guard import Door, principal
from vestige.doors.http.server import Server
from vestige.doors.http.verbs import PREFIX
from vestige.errors import UsageError
from vestige.limits import ARGUMENT_MAX

FORMATS = ("curl", "python")


def routes(server: Server) -> list[BaseRoute]:
    async def reproduce(request: Request) -> Response:
        asked = dict(request.query_params)
        data = await server.in_thread(_reproduce, server, principal(request), asked)
        return Response(
            encode(data), headers={"content-type": "application/json", "cache-control": PRIVATE}
        )

    return [Door(PREFIX + "reproduce", reproduce, scope="runs:read", operation=_OPERATION)]


def _reproduce(server: Server, who: Principal, asked: dict[str, str]) -> dict[str, Any]:
    unknown = asked.keys() - {"id", "format"}
    if unknown:
        raise UsageError("reproduce: takes id and format (there is an argument it does not know).")
    span, form = asked.get("id", ""), asked.get("format", "curl")
    if not span.strip() or "\0" in span or len(span) > ARGUMENT_MAX:
        raise UsageError("reproduce: id is missing or no id (expected a span).")
    if form not in FORMATS:
        raise UsageError(f"reproduce: format is not known (expected {' or '.join(FORMATS)}).")
    with server.asking(who) as debugger:
        text = debugger.reproduce(span, form)
    return {"version": 1, "format": form, "text": text}


_OPERATION: dict[str, Any] = {
    "operationId": "reproduce",
    "summary": "A recorded request as a program that sends it again; masked secrets are variables.",
    "parameters": [
        {
            "name": "id", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1},
            "description": "A span: r7.s12, its id, or the start of it.",
        },
        {
            "name": "format", "in": "query",
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
                        "required": ["version", "format", "text"],
                        "properties": {
                            "version": {"type": "integer"},
                            "format": {"type": "string"},
                            "text": {"type": "string"},
                        },
                    }
                }
            },
        }
    },
}  # fmt: skip
