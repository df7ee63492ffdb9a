"""Ingest: journal lines from other machines."""

from __future__ import annotations

from starlette.routing import BaseRoute

from vestige.doors.http.server import Server


def routes(server: Server) -> list[BaseRoute]:
    return []
