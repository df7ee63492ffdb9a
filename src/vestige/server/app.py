"""The application: every route module's routes, behind the guard.

app = make_app(Server(home, token=...))
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
from vestige.server.auth import GuardedRoute, check_names, exchange, identify
from vestige.server.responses import ApiError, api_error_of
from vestige.server.routes import (
    api,
    health,
    ingest,
    live,
    login,
    notes,
    openapi,
    openwop,
    reproduce,
    viewer_page,
)
from vestige.server.server_state import BusyError, KeyBusyError, Server

MODULES = (health, api, notes, reproduce, live, openapi, openwop, ingest, login, viewer_page)
"""Each gives `routes(server)`. The first route that fits is taken."""


def make_app(server: Server) -> Starlette:
    routes = [route for module in MODULES for route in module.routes(server)]
    for route in routes:
        assert isinstance(route, GuardedRoute), (
            f"{route}: a route says who may pass: make it a Door"
        )
    app = Starlette(
        routes=routes,
        middleware=[Middleware(AuthMiddleware, server=server, routes=routes)],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host that was sent
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    names = {404: "not_found", 405: "method_not_allowed"}
    texts = {404: "There is nothing at this path.", 405: "This path does not take that method."}
    name = names.get(error.status_code, "validation_error")
    text = texts.get(error.status_code, "The request makes no sense.")
    return ApiError(error.status_code, name, text, headers=error.headers).response()


class AuthMiddleware:
    """Around everything: the guard before, the log line and the numbers after."""

    def __init__(self, app: ASGIApp, server: Server, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._server = server
        self._public = {
            route.path for route in routes if isinstance(route, GuardedRoute) and route.public
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # start and end of the server
            return
        state = scope.setdefault("state", {})
        state["body_s"] = self._server.body_s
        began = clock.monotonic()
        told = {"status": 0, "bytes": 0}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                own = {name for name, _ in message["headers"]}
                more = [each for each in SECURITY_HEADERS if each[0] not in own]
                message["headers"] = [*message["headers"], *more]
            elif message["type"] == "http.response.body":
                told["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._pass(scope, receive, sending, told)
        finally:
            self._tell(scope, state, told, clock.monotonic() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, told: dict[str, int]) -> None:
        try:
            response = self._let_in(scope)
            if response is not None:
                await response(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets the envelope
            refusal = self._refusal(error)
            if told["status"] == 0:
                await refusal.response()(scope, receive, send)

    def _let_in(self, scope: Scope) -> Response | None:
        if len(self._server.connections) > self._server.connections_max:
            raise ApiError(
                503,
                "busy",
                "Too many connections are open. Come again soon.",
                headers={"retry-after": "1", "connection": "close"},
            )
        check_names(self._server, scope)
        if scope["path"] in self._public:
            return None
        response = exchange(self._server, scope)
        if response is not None:
            return response
        who = identify(self._server, scope)
        if who is None and login.asks_for_page(scope):
            return login.form(scope)
        if who is None:
            raise ApiError(
                401,
                "unauthenticated",
                "A key is needed (Authorization: Bearer ...).",
                headers={"www-authenticate": 'Bearer realm="vestige"'},
            )
        scope["state"]["principal"] = who
        return None

    def _refusal(self, error: Exception) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, BusyError):
            return ApiError(
                503,
                "busy",
                "Too many questions wait. Ask again soon.",
                headers={"retry-after": "1"},
            )
        if isinstance(error, KeyBusyError):
            seconds = max(1, round(error.wait_s + 0.5))
            text = f"{error} Ask again in {seconds} s."
            headers = {"retry-after": str(seconds)}
            return ApiError(429, "rate_limited", text, {"retryAfter": seconds}, headers)
        if isinstance(error, ClientDisconnect):
            return ApiError(400, "disconnected", "The connection was closed before the answer.")
        known = api_error_of(error, self._server.home)
        if known is not None:
            return known
        where = traceback.extract_tb(error.__traceback__)[-1]
        # The kind and the place, not the message: that may quote what was recorded.
        self._server.log({"bug": type(error).__name__, "where": f"{where.filename}:{where.lineno}"})
        return ApiError(500, "internal", "A bug in vestige: see the server's log.")

    def _tell(
        self, scope: Scope, state: dict[str, object], told: dict[str, int], seconds: float
    ) -> None:
        # The route's own words, never the path or the query as they came: those may hold secrets.
        door = str(state.get("door", "-"))
        who = state.get("principal")
        metrics = self._server.metrics
        metrics.observe(door, seconds)
        metrics.count(
            "vestige_http_requests_total",
            route=door,
            status=str(told["status"]),
            method=scope["method"] if scope["method"] in METHODS else "other",
        )
        client = scope.get("client")
        self._server.log(
            {
                "at_ns": self._server.clock.now_ns(),
                "client": client[0] if client else None,
                "key": getattr(who, "key_id", None),
                "method": scope["method"] if scope["method"] in METHODS else "other",
                "route": door,
                "status": told["status"],
                "bytes": told["bytes"],
                "ms": round(seconds * 1e3, 3),
            }
        )


METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
