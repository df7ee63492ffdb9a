"""OpenWOP: recorded runs as that protocol's clients ask for them."""

from __future__ import annotations

from starlette.routing import BaseRoute

from vestige.doors.http.server import Server


def routes(server: Server) -> list[BaseRoute]:
    return []
