"""/: the viewer's page, with a policy that allows its own script and requests to this server.

The page gets its data from the API. The current view is in the URL's hash, which no server sees.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.server.auth import GuardedRoute
from vestige.server.responses import PRIVATE, compress, matches
from vestige.server.server_state import Server
from vestige.server.viewer_assets import read_viewer


def routes(server: Server) -> list[BaseRoute]:
    async def page(request: Request) -> Response:
        return await server.in_thread(
            render_page,
            request.headers.get("if-none-match", ""),
            request.headers.get("accept-encoding", ""),
        )

    return [GuardedRoute("/", page, scope="runs:read")]


def render_page(if_none_match: str, accept_encoding: str) -> Response:
    viewer = read_viewer()
    html = viewer.html.encode()
    etag = f'"{hashlib.sha256(html).hexdigest()[:32]}"'
    headers = {
        "cache-control": PRIVATE,
        "content-security-policy": viewer.policy("'self'"),
        "content-type": "text/html; charset=utf-8",
        "etag": etag,
    }
    if matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    body, encoding_headers = compress(html, accept_encoding)
    return Response(body, headers={**headers, **encoding_headers})
