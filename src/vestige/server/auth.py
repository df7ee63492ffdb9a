"""The guard: who asks, by which name, from which page; and what a route asks of them.

Every request passes here before any route is looked up, so an unknown path tells a stranger
nothing: 401 comes before 404. The only paths without a key are `public` routes.

    Door("/api/v1/list", endpoint, scope="runs:read")
    principal(request)                 # who it is
    require(request, "runs:write")     # raises the 403

A browser is let in by the per-start token: in the printed URL, or by the code of a file that
`vestige ui` makes for it (server/launch_file.py), then as a cookie that no
script can read and no other site can send; or by a key, in a form (server/routes/login.py). A page elsewhere can make a browser send requests
here all the same; Host (DNS rebinding) and Origin (another site) give it away.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from vestige._runtime import clock
from vestige.fleet.api_keys import Principal
from vestige.limits import HTTP_BODY_RATE_MIN, HTTP_BODY_S
from vestige.server.launch_file import landing
from vestige.server.responses import ApiError
from vestige.server.server_state import LOCAL, Client, Server, client

Endpoint = Callable[[Request], Awaitable[Response]]


class GuardedRoute(Route):
    """A route that says who may pass, and what may be brought in."""

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        scope: str | None = None,
        public: bool = False,
        methods: Collection[str] = ("GET",),
        body_max: int = 0,
        operation: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(path, endpoint, methods=list(methods))
        self.needs = scope
        """None: whoever has a key, whatever it is for."""
        self.public = public
        self.body_max = body_max
        """Bytes of a request's body; 0: none is expected."""
        self.operation = operation
        """Its part of the OpenAPI document, without what is the same for all; None: not in it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["door"] = self.path
        if scope["method"] in (self.methods or ()):
            if self.needs is not None:
                require(Request(scope), self.needs)
            body_s = scope["state"].get("body_s", HTTP_BODY_S)
            receive = bounded(scope, receive, self.body_max, body_s)
        who = scope["state"].get("principal")
        of = Client("" if who is None else who.key_id, partial(disconnected, receive))
        before = client.set(of)
        try:
            await super().handle(scope, receive, send)
        finally:
            client.reset(before)


async def disconnected(receive: Receive) -> None:
    """Return when the connection is gone. Only once the request's body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def bounded(scope: Scope, receive: Receive, bytes_max: int, body_s: float) -> Receive:
    """The request's body, refused when it is longer, or comes too slowly."""
    length = header(scope, b"content-length")
    closed = {"connection": "close"}  # the rest of it is not worth reading
    too_long = ApiError(
        413,
        "too_large",
        f"The body is longer than {bytes_max} bytes.",
        {"bytesMax": bytes_max},
        closed,
    )
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise too_long
    taken = 0
    whole = False
    began = clock.monotonic()

    async def receiving() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()  # only the end of the connection comes now, whenever that is
        left_s = began + body_s + taken / HTTP_BODY_RATE_MIN - clock.monotonic()
        try:  # what came quickly earns no longer pause
            message = await asyncio.wait_for(receive(), max(0.0, min(left_s, body_s)))
        except TimeoutError:
            text = "The body did not arrive in time."
            raise ApiError(408, "timeout", text, headers=closed) from None
        taken += len(message.get("body", b""))
        if taken > bytes_max:
            raise too_long
        whole = not message.get("more_body", False)
        return message

    return receiving


def principal(request: Request) -> Principal:
    """Who asks. Only where the guard let somebody in: not behind a public door."""
    return cast(Principal, request.scope["state"]["principal"])


def require(request: Request, scope: str) -> Principal:
    """Who asks, if they may; else a 403 that names the scope."""
    who = principal(request)
    if not who.may(scope):
        raise ApiError(
            403, "forbidden", f"{who.key_id}: this key is not for {scope}.", {"scope": scope}
        )
    return who


def identify(server: Server, scope: Scope) -> Principal | None:
    """By Bearer, or by the cookie that a key or the token in the URL was exchanged for."""
    secret = _bearer(scope) or _cookie(server, scope)
    return None if secret is None else find_principal(server, secret)


def find_principal(server: Server, secret: str) -> Principal | None:
    """Whose key or token it is."""
    if server.token is not None and _same(secret, server.token):
        return LOCAL
    return server.keys.find(secret, server.clock.now_ns())


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _bearer(scope: Scope) -> str | None:
    kind, _, secret = header(scope, b"authorization").partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None


def cookie_name(server: Server) -> str:
    """With the port: browsers send a host's cookies to all of its ports."""
    return f"vestige-{server.port}"


def _cookie(server: Server, scope: Scope) -> str | None:
    for part in header(scope, b"cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(server) and value:
            return value
    return None


def header(scope: Scope, name: bytes) -> str:
    """A header's value; empty where there is none. Bytes that are no Latin-1 do not exist."""
    for key, value in scope["headers"]:
        if key == name:
            return cast(bytes, value).decode("latin-1")
    return ""


# --- names and pages --------------------------------------------------------------------------


def check_names(server: Server, scope: Scope) -> None:
    """Refuse a request that was made for another name, or by another site's page."""
    host = header(scope, b"host")
    if server.hosts is not None and _name(host) not in server.hosts:
        raise ApiError(403, "forbidden_host", "This server is not asked for by that name (Host).")
    origin = header(scope, b"origin")
    # A proxy before us may speak TLS for us: then its pages are https and we are not.
    schemes = ("https",) if scope["scheme"] == "https" else ("http", "https")
    if origin and origin not in [f"{scheme}://{host}" for scheme in schemes]:
        raise ApiError(403, "forbidden_origin", "Requests of other sites' pages are refused.")
    if header(scope, b"sec-fetch-site") in ("cross-site", "same-site") and not _is_visit(scope):
        raise ApiError(403, "forbidden_origin", "Requests of other sites' pages are refused.")


def _is_visit(scope: Scope) -> bool:
    """Somebody followed a link: the browser shows the answer to them, not to the other page."""
    return scope["method"] == "GET" and header(scope, b"sec-fetch-mode") == "navigate"


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)


def _name(host: str) -> str:
    """Without the port. Whatever is not plainly a name and a port has none."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""


# --- the token in the URL -----------------------------------------------------------------------


def exchange(server: Server, scope: Scope) -> Response | None:
    """The printed URL's token, or the code of a launch file, for a cookie."""
    if server.token is None or scope["method"] not in ("GET", "HEAD"):
        return None
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name, value in pairs:
        if name == "launch" and scope["method"] == "GET":
            anchor = server.launches.redeem(value)
            return None if anchor is None else _with_cookie(server, scope, landing(anchor))
        if name == "token":
            if not _same(value, server.token):
                return None
            return _with_cookie(server, scope, _without_token(scope, pairs))
    return None


def _without_token(scope: Scope, pairs: list[tuple[str, str]]) -> Response:
    """The same page is then asked for without it."""
    rest = urlencode([pair for pair in pairs if pair[0] != "token"])
    # One slash: `//elsewhere` would be another host.
    path = "/" + cast(bytes, scope["raw_path"]).decode("latin-1").lstrip("/\\")
    response = Response(status_code=303, headers={"location": path + (f"?{rest}" if rest else "")})
    response.headers["cache-control"] = "no-store"
    return response


def _with_cookie(server: Server, scope: Scope, response: Response) -> Response:
    response.set_cookie(
        cookie_name(server),
        server.token or "",
        httponly=True,
        samesite="strict",
        path="/",
        secure=scope["scheme"] == "https",
    )
    return response
