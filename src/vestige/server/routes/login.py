"""/login and /logout: a form that exchanges a key for a cookie.

    GET  /          without a key, from a browser: 401 with the form
    POST /login     sets a cookie that no script can read, and redirects to the page
    GET  /logout    deletes the cookie

A link's position in the viewer is in its hash, which servers do not see. The form's one line of
script keeps the hash, so the user arrives at the linked view.

Elsewhere: other ways to authenticate, and protection against other sites, are in server/auth.py.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Scope

from vestige.limits import LOGIN_BODY_MAX
from vestige.server.auth import GuardedRoute, cookie_name, find_principal, header
from vestige.server.responses import NO_STORE
from vestige.server.server_state import Server

_SCRIPT: Final = "document.forms[0].action += location.hash"
_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { display: grid; min-height: 90vh; margin: 0; padding: 1rem; place-items: center; }
main { width: min(26rem, 100%); }
form { display: grid; gap: .75rem; }
h1 { font-size: 1.25rem; margin: 0; }
p { margin: 0; }
input, button { font: inherit; padding: .5rem .75rem; border-radius: .375rem; }
input, button { border: 1px solid #767676; }
button { cursor: pointer; }
[role=alert] { border-left: .25rem solid #c62828; padding-left: .75rem; }
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Vestige: sign in</title>
<style>{style}</style>
<main>
<form method="post" action="/login">
<h1>Vestige</h1>
{messages}
<label for="key">Access key, or the token in the URL printed by the server</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Continue</button>
<p>A key starts with <code>vstg_</code>. Ask the server's owner for one
(<code>vestige server keys add NAME --scope runs:read</code>).</p>
</form>
</main>
<script>{script}</script>
</html>
"""
_FIELDS_MAX: Final = 8
_UNKNOWN: Final = "This key is unknown, expired or revoked."
_NOT_FOR_READING: Final = "This key lacks the scope runs:read."
_UNENCRYPTED: Final = "This connection is not encrypted: others on the network can read the key."
_LOGGED_OUT: Final = "You are signed out."


def is_page_request(scope: Scope) -> bool:
    """Return whether a browser requests the page: its user can enter a key."""
    is_page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
    return is_page and "text/html" in header(scope, b"accept")


def render_form(scope: Scope, status: int = 401, message: str = "") -> Response:
    lines = [f'<p role="alert">{message}</p>'] if message else []
    client = scope.get("client")
    if scope["scheme"] == "http" and client and client[0] not in ("127.0.0.1", "::1"):
        lines.append(f"<p>{_UNENCRYPTED}</p>")
    page = _PAGE.format(style=_STYLE, script=_SCRIPT, messages="\n".join(lines))
    headers = {
        "cache-control": NO_STORE,
        "content-security-policy": _POLICY,
        "content-type": "text/html; charset=utf-8",
        # With `no-referrer` the browser would send `Origin: null` with this page's own form.
        "referrer-policy": "same-origin",
    }
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="vestige"'
    return Response(page, status, headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_hash(_SCRIPT)}",
        f"style-src {_hash(_STYLE)}",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


def routes(server: Server) -> list[BaseRoute]:
    async def login(request: Request) -> Response:
        key = _parse_key(await request.body())
        found = find_principal(server, key)
        if found is None:
            return render_form(request.scope, 401, _UNKNOWN)
        if not found.may("runs:read"):
            return render_form(request.scope, 403, _NOT_FOR_READING)
        response = Response(status_code=303, headers={"location": "/", "cache-control": NO_STORE})
        # Lax: a user who follows a link from another site stays signed in. That site's page cannot
        # read the response (validate_host_and_origin in server/auth.py).
        response.set_cookie(
            cookie_name(server),
            key,
            httponly=True,
            samesite="lax",
            path="/",
            secure=request.url.scheme == "https",
        )
        return response

    async def logout(request: Request) -> Response:
        response = render_form(request.scope, 200, _LOGGED_OUT)
        response.delete_cookie(cookie_name(server), path="/", httponly=True, samesite="lax")
        return response

    return [
        GuardedRoute("/login", login, methods=("POST",), public=True, body_max=LOGIN_BODY_MAX),
        GuardedRoute("/logout", logout, public=True),
    ]


def _parse_key(body: bytes) -> str:
    try:
        fields = parse_qsl(body.decode("latin-1"), max_num_fields=_FIELDS_MAX)
    except ValueError:  # too many fields
        return ""
    return next((value.strip() for name, value in fields if name == "key"), "")
