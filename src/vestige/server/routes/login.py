"""A browser's way in where there are only keys: a form for one, which becomes a cookie.

    GET  /          without a key, by a browser: 401, and the form in it
    POST /login     a key for a cookie that no script can read; the page is then asked for again
    GET  /logout    the cookie is forgotten

Where in the viewer a link leads stands behind its `#`, which no server sees. The form's one line
of script takes it along, so that somebody who was sent a link arrives at it.

Elsewhere: who else is let in, and what other sites' pages may not do, in server/auth.py.
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

from vestige.fleet.api_keys import Principal
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
input, button { font: inherit; padding: .5rem .75rem; border: 1px solid #767676; border-radius: .375rem; }
button { cursor: pointer; }
[role=alert] { border-left: .25rem solid #c62828; padding-left: .75rem; }
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Vestige: a key is needed</title>
<style>{style}</style>
<main>
<form method="post" action="/login">
<h1>Vestige</h1>
{said}
<label for="key">Key, or the token of the address that the server printed</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Open the runs</button>
<p>A key begins with <code>vstg_</code>. Who runs this server makes one with
<code>vestige keys add NAME --scope runs:read</code>.</p>
</form>
</main>
<script>{script}</script>
</html>
"""
_FIELDS_MAX: Final = 8
_UNKNOWN: Final = "This key is not known here, has expired, or was revoked."
_NOT_FOR_READING: Final = "This key is not for reading runs (runs:read)."
_IN_CLEAR: Final = "This connection is not encrypted: others on the way can read the key."
_BYE: Final = "The browser has forgotten the key."


def asks_for_page(scope: Scope) -> bool:
    """Whether a request that brought no key is a person's, who can be asked for one."""
    is_page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
    return is_page and "text/html" in header(scope, b"accept")


def form(scope: Scope, status: int = 401, said: str = "") -> Response:
    lines = [f'<p role="alert">{said}</p>'] if said else []
    client = scope.get("client")
    if scope["scheme"] == "http" and client and client[0] not in ("127.0.0.1", "::1"):
        lines.append(f"<p>{_IN_CLEAR}</p>")
    page = _PAGE.format(style=_STYLE, script=_SCRIPT, said="\n".join(lines))
    headers = {
        "cache-control": NO_STORE,
        "content-security-policy": _POLICY,
        "content-type": "text/html; charset=utf-8",
        # With `no-referrer` a browser would hide from us that the form is our own (Origin: null).
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
        key = _key_in(await request.body())
        who = find_principal(server, key)
        refused = _refused(who)
        if refused is not None:
            return form(request.scope, *refused)
        response = _to_page()
        # Lax: somebody who follows a link from elsewhere is let in. Another site's page still gets
        # nothing: it can make a browser show ours, and no more (guard.check_names).
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
        response = form(request.scope, 200, _BYE)
        response.delete_cookie(cookie_name(server), path="/", httponly=True, samesite="lax")
        return response

    return [
        GuardedRoute("/login", login, methods=("POST",), public=True, body_max=LOGIN_BODY_MAX),
        GuardedRoute("/logout", logout, public=True),
    ]


def _key_in(body: bytes) -> str:
    try:
        given = parse_qsl(body.decode("latin-1"), max_num_fields=_FIELDS_MAX)
    except ValueError:  # more of them
        return ""
    return next((value.strip() for name, value in given if name == "key"), "")


def _refused(who: Principal | None) -> tuple[int, str] | None:
    if who is None:
        return 401, _UNKNOWN
    return None if who.may("runs:read") else (403, _NOT_FOR_READING)


def _to_page() -> Response:
    return Response(status_code=303, headers={"location": "/", "cache-control": NO_STORE})
