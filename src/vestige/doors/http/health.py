"""/healthz: is the server there, and can it read its store. For whoever watches it; no key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.doors.http.answers import NO_STORE, encode
from vestige.doors.http.guard import Door
from vestige.doors.http.server import LOCAL, Server


def routes(server: Server) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        await server.in_thread(_look, server)  # a store that cannot be read is a 503
        return Response(
            encode({"status": "ok"}),
            headers={"content-type": "application/json", "cache-control": NO_STORE},
        )

    return [Door("/healthz", healthz, public=True)]


def _look(server: Server) -> None:
    with server.asking(LOCAL) as debugger:
        debugger.store.has_run("")
