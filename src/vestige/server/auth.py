"""Authentication and authorization: keys, the token cookie, Host and Origin.

Every request is authenticated before its route is looked up, so 401 comes before 404 and an
unknown path reveals nothing. Only `public` routes need no key.

    GuardedRoute("/api/v1/list", endpoint, scope="runs:read")
    principal(request)                 # the authenticated key
    require(request, "runs:write")     # raises the 403

A browser authenticates with the token in the printed URL, or with a one-time code from a file that
`vestige ui` writes (server/open_browser.py). It then has a cookie that no script can read and no
other site can send; the cookie is derived from the token and cannot sign anything. A key in the
login form works too (server/routes/login.py). Other sites' pages can still make a browser send
requests; those are recognized by Host (DNS rebinding) and Origin (another site), and refused.
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
from vestige.server.open_browser import render_landing_page
from vestige.server.responses import ApiError
from vestige.server.server_state import LOCAL, LOCAL_EXPORTER, Client, Server, client
from vestige.server.viewer_instance import sign

Endpoint = Callable[[Request], Awaitable[Response]]


class GuardedRoute(Route):
    """A route that declares its scope and the size of its request body."""

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
        self.scope = scope
        """The scope that a key needs. None: any valid key is accepted."""
        self.public = public
        self.body_max = body_max
        """Maximum size of the request body in bytes. 0: no body is accepted."""
        self.operation = operation
        """The route's part of the OpenAPI document, without the common parts. None: not listed."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["route"] = self.path
        if scope["method"] in (self.methods or ()):
            if self.scope is not None:
                require(Request(scope), self.scope)
            body_s = scope["state"].get("body_s", HTTP_BODY_S)
            receive = limit_body(scope, receive, self.body_max, body_s)
        principal = scope["state"].get("principal")
        key_id = "" if principal is None else principal.key_id
        previous = client.set(Client(key_id, partial(wait_for_disconnect, receive)))
        try:
            await super().handle(scope, receive, send)
        finally:
            client.reset(previous)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected. Call it only after the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def limit_body(scope: Scope, receive: Receive, bytes_max: int, body_s: float) -> Receive:
    """Wrap `receive` to refuse a body that is too long or arrives too slowly."""
    length = header(scope, b"content-length")
    closed = {"connection": "close"}  # the rest of the body is not read
    too_long = ApiError(
        413,
        "too_large",
        f"The body is longer than {bytes_max} bytes.",
        {"bytesMax": bytes_max},
        closed,
    )
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise too_long
    received_bytes = 0
    is_complete = False
    started = clock.monotonic()

    async def receive_limited() -> Message:
        nonlocal received_bytes, is_complete
        if is_complete:
            return await receive()  # only the disconnect follows, with no time limit
        left_s = started + body_s + received_bytes / HTTP_BODY_RATE_MIN - clock.monotonic()
        try:  # `body_s` also bounds each pause, however fast the body was before
            message = await asyncio.wait_for(receive(), max(0.0, min(left_s, body_s)))
        except TimeoutError:
            text = "The body did not arrive in time."
            raise ApiError(408, "timeout", text, headers=closed) from None
        received_bytes += len(message.get("body", b""))
        if received_bytes > bytes_max:
            raise too_long
        is_complete = not message.get("more_body", False)
        return message

    return receive_limited


def principal(request: Request) -> Principal:
    """Return the authenticated principal. Public routes have none."""
    return cast(Principal, request.scope["state"]["principal"])


def require(request: Request, scope: str) -> Principal:
    """Return the principal if its key has the scope; otherwise raise a 403 that names the scope."""
    found = principal(request)
    if not found.may(scope):
        raise ApiError(
            403, "forbidden", f"{found.key_id}: this key lacks the scope {scope}.", {"scope": scope}
        )
    return found


def identify(server: Server, scope: Scope) -> Principal | None:
    """Return the principal of the Authorization header or of the cookie."""
    secret = _bearer(scope) or _cookie(server, scope)
    return None if secret is None else find_principal(server, secret)


def find_principal(server: Server, secret: str) -> Principal | None:
    """Return the principal of a key or token."""
    if server.token is not None and (
        _is_equal(secret, server.token) or _is_equal(secret, _cookie_value(server.token))
    ):
        return LOCAL
    if server.otlp_key is not None and _is_equal(secret, server.otlp_key):
        return LOCAL_EXPORTER
    return server.keys.find(secret, server.clock.now_ns())


def _cookie_value(token: str) -> str:
    """Return the cookie's value. Browsers send it to all ports, so it is not the token itself."""
    return sign(token, "cookie")


def _is_equal(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), expected.encode())


def _bearer(scope: Scope) -> str | None:
    # Exporters disagree whether OTEL_EXPORTER_OTLP_HEADERS is percent-encoded: both forms arrive.
    text = re.sub("^bearer%20", "Bearer ", header(scope, b"authorization"), flags=re.IGNORECASE)
    kind, _, secret = text.partition(" ")
    return (secret.strip() or None) if kind.lower() == "bearer" else None


def cookie_name(server: Server) -> str:
    """Return the cookie's name. It contains the port: browsers send cookies to all ports."""
    return f"vestige-{server.port}"


def _cookie(server: Server, scope: Scope) -> str | None:
    for part in header(scope, b"cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(server) and value:
            return value
    return None


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value, or an empty text. Latin-1 decodes any bytes."""
    for key, value in scope["headers"]:
        if key == name:
            return cast(bytes, value).decode("latin-1")
    return ""


# --- Host and Origin --------------------------------------------------------------------------


def validate_host_and_origin(server: Server, scope: Scope) -> None:
    """Refuse a request for another host name, or from another site's page."""
    host = header(scope, b"host")
    if server.hosts is not None and _host_name(host) not in server.hosts:
        raise ApiError(403, "forbidden_host", "The server does not serve this host name (Host).")
    origin = header(scope, b"origin")
    # A TLS-terminating proxy serves https pages in front of a plain-HTTP server.
    schemes = ("https",) if scope["scheme"] == "https" else ("http", "https")
    is_foreign = origin and origin not in [f"{scheme}://{host}" for scheme in schemes]
    site = header(scope, b"sec-fetch-site")
    if is_foreign or (site in ("cross-site", "same-site") and not _is_navigation(scope)):
        raise ApiError(403, "forbidden_origin", "Requests from other sites' pages are refused.")


def _is_navigation(scope: Scope) -> bool:
    """Return whether a user followed a link. The other site's page cannot read the response."""
    return scope["method"] == "GET" and header(scope, b"sec-fetch-mode") == "navigate"


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)


def _host_name(host: str) -> str:
    """Return the name without the port, or an empty text for a malformed Host."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""


# --- the token in the URL -----------------------------------------------------------------------


def exchange_token(server: Server, scope: Scope) -> Response | None:
    """Exchange the token in the URL, or a launch code, for a cookie. None: there is neither."""
    if server.token is None or scope["method"] not in ("GET", "HEAD"):
        return None
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name, value in pairs:
        if name == "launch" and scope["method"] == "GET":
            anchor = server.launches.redeem(server.token, value)
            if anchor is None:
                return None
            return _with_cookie(server, scope, render_landing_page(anchor))
        if name == "token":
            if not _is_equal(value, server.token):
                return None
            return _with_cookie(server, scope, _redirect_without_token(scope, pairs))
    return None


def _redirect_without_token(scope: Scope, pairs: list[tuple[str, str]]) -> Response:
    rest = urlencode([pair for pair in pairs if pair[0] != "token"])
    # Exactly one leading slash: `//elsewhere` would be another host.
    path = "/" + cast(bytes, scope["raw_path"]).decode("latin-1").lstrip("/\\")
    response = Response(status_code=303, headers={"location": path + (f"?{rest}" if rest else "")})
    response.headers["cache-control"] = "no-store"
    return response


def _with_cookie(server: Server, scope: Scope, response: Response) -> Response:
    response.set_cookie(
        cookie_name(server),
        _cookie_value(server.token or ""),
        max_age=server.cookie_s,
        httponly=True,
        samesite="strict",
        path="/",
        secure=scope["scheme"] == "https",
    )
    return response
