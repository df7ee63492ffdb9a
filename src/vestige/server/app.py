"""The ASGI application: the routes of all route modules, behind authentication.

    app = make_app(Server(home, token=...))

Elsewhere: authentication rules are in server/auth.py, each route's scope beside the route.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vestige._runtime import clock
from vestige.server.auth import GuardedRoute, exchange_token, identify, validate_host_and_origin
from vestige.server.responses import ApiError, api_error_of
from vestige.server.routes import (
    api,
    health,
    ingest,
    lineage,
    live,
    login,
    messages,
    metrics,
    notes,
    openapi,
    openwop,
    reproduce,
    same_task,
    share,
    viewer_page,
)
from vestige.server.server_state import BusyError, KeyBusyError, Server

MODULES = (
    health,
    metrics,
    api,
    notes,
    messages,
    reproduce,
    lineage,
    same_task,
    share,
    live,
    openapi,
    openwop,
    ingest,
    login,
    viewer_page,
)
"""Modules with a `routes(server)` function. The first route that matches handles a request."""


def make_app(server: Server) -> Starlette:
    routes = [route for module in MODULES for route in module.routes(server)]
    for route in routes:
        assert isinstance(route, GuardedRoute), f"{route}: declares no scope: use GuardedRoute"
    app = Starlette(
        routes=routes,
        middleware=[Middleware(AuthMiddleware, server=server, routes=routes)],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the client's Host header
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    names = {404: "not_found", 405: "method_not_allowed"}
    texts = {404: "There is nothing at this path.", 405: "This path does not support that method."}
    name = names.get(error.status_code, "validation_error")
    text = texts.get(error.status_code, "The request is invalid.")
    return ApiError(error.status_code, name, text, headers=error.headers).response()


class AuthMiddleware:
    """Authenticate each request, and afterwards log and count it."""

    def __init__(self, app: ASGIApp, server: Server, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._server = server
        self._public = {
            route.path for route in routes if isinstance(route, GuardedRoute) and route.public
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # server startup and shutdown
            return
        state = scope.setdefault("state", {})
        state["body_s"] = self._server.body_s
        started = clock.monotonic()
        sent = {"status": 0, "bytes": 0}

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                names = {name for name, _ in message["headers"]}
                missing = [header for header in SECURITY_HEADERS if header[0] not in names]
                message["headers"] = [*message["headers"], *missing]
            elif message["type"] == "http.response.body":
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._respond(scope, receive, send_counted, sent)
        finally:
            self._log_request(scope, state, sent, clock.monotonic() - started)

    async def _respond(
        self, scope: Scope, receive: Receive, send: Send, sent: dict[str, int]
    ) -> None:
        try:
            response = self._authenticate(scope)
            if response is not None:
                await response(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # every error is answered with the envelope
            api_error = self._to_api_error(error)
            if sent["status"] == 0:
                await api_error.response()(scope, receive, send)

    def _authenticate(self, scope: Scope) -> Response | None:
        """Store the principal in the scope, or return the response that replaces the route's."""
        if len(self._server.connections) > self._server.connections_max:
            raise ApiError(
                503,
                "busy",
                "Too many connections are open. Try again soon.",
                headers={"retry-after": "1", "connection": "close"},
            )
        validate_host_and_origin(self._server, scope)
        if scope["path"] in self._public:
            return None
        response = exchange_token(self._server, scope)
        if response is not None:
            return response
        principal = identify(self._server, scope)
        if principal is None and login.is_page_request(scope):
            return login.render_form(scope)
        if principal is None:
            raise ApiError(
                401,
                "unauthenticated",
                "An access key is required (Authorization: Bearer ...).",
                headers={"www-authenticate": 'Bearer realm="vestige"'},
            )
        scope["state"]["principal"] = principal
        return None

    def _to_api_error(self, error: Exception) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, BusyError):
            return ApiError(
                503,
                "busy",
                "Too many requests are waiting. Try again soon.",
                headers={"retry-after": "1"},
            )
        if isinstance(error, KeyBusyError):
            seconds = max(1, round(error.wait_s + 0.5))
            text = f"{error} Try again in {seconds} s."
            headers = {"retry-after": str(seconds)}
            return ApiError(429, "rate_limited", text, {"retryAfter": seconds}, headers)
        if isinstance(error, ClientDisconnect):
            return ApiError(400, "disconnected", "The client closed the connection.")
        known = api_error_of(error, self._server.home)
        if known is not None:
            return known
        frame = traceback.extract_tb(error.__traceback__)[-1]
        # The message is left out: it may quote recorded data.
        self._server.log({"bug": type(error).__name__, "where": f"{frame.filename}:{frame.lineno}"})
        return ApiError(500, "internal", "Internal error in vestige. See the server's log.")

    def _log_request(
        self, scope: Scope, state: dict[str, object], sent: dict[str, int], seconds: float
    ) -> None:
        # The route's pattern, never the path or query of the request: those may contain secrets.
        route = str(state.get("route", "-"))
        method = scope["method"] if scope["method"] in METHODS else "other"
        metrics = self._server.metrics
        metrics.observe(route, seconds)
        metrics.count(
            "vestige_http_requests_total", route=route, status=str(sent["status"]), method=method
        )
        client = scope.get("client")
        message = state.get("message")
        self._server.log(
            {
                "at_ns": self._server.clock.now_ns(),
                "client": client[0] if client else None,
                "key": getattr(state.get("principal"), "key_id", None),
                "method": method,
                "route": route,
                "status": sent["status"],
                "bytes": sent["bytes"],
                "ms": round(seconds * 1e3, 3),
                **({"message": message} if message else {}),
            }
        )


METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
