"""Open the viewer in a browser without its token on a command line.

    code = make_launch_code(key, "#/run/r7")
    with launch_file(f"http://127.0.0.1:8642/?launch={code}") as path:
        webbrowser.open(path.as_uri())

Every user of the machine can read a browser's arguments (ps). So the browser gets the path of a
file that only its owner can read, and which redirects to a URL with a code. The server accepts
the code once, for a short time, in exchange for the cookie. The code is signed with the viewer's
key, so a second `vestige ui` can open the instance that the first one serves.
"""

from __future__ import annotations

import hmac
import html
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starlette.responses import Response

from vestige._runtime import clock
from vestige.server.responses import NO_STORE
from vestige.server.viewer_instance import sign

LAUNCH_S: Final = 300
"""Lifetime of a code: a browser that is not running yet may start slowly."""
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>Vestige</title>
<p><a href="{url}">Open the viewer</a></p>
</html>
"""


def make_launch_code(key: str, anchor: str) -> str:
    """Return a code that opens the viewer with this key at an anchor (the URL's hash)."""
    until = str(clock.SYSTEM.now_ns() // 10**9 + LAUNCH_S)
    nonce = clock.random_bytes(12).hex()
    place = anchor.encode().hex()
    return f"{until}.{nonce}.{place}.{sign(key, 'launch', until, nonce, place)}"


class LaunchCodes:
    """Redeem launch codes, each of which authenticates one browser."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def redeem(self, key: str, code: str) -> str | None:
        """Return the anchor of a code. None: the code is forged, used or expired."""
        until, nonce, place, signature = (*code.split("."), "", "", "", "")[:4]
        expected = sign(key, "launch", until, nonce, place)
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
            return None
        now = clock.SYSTEM.now_ns() // 10**9
        self._used = {each: end for each, end in self._used.items() if end >= now}
        if int(until) < now or nonce in self._used:
            return None
        self._used[nonce] = int(until)
        return bytes.fromhex(place).decode()


def render_landing_page(anchor: str) -> Response:
    """Render a page that opens the viewer.

    A redirect would not work: the navigation starts at a file, and browsers do not send a strict
    cookie along a redirect chain that starts at another site. This page is the server's own.
    """
    page = _PAGE.format(url=html.escape(f"/{anchor}"))
    headers = {
        "cache-control": NO_STORE,
        "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
        "content-type": "text/html; charset=utf-8",
    }
    return Response(page, headers=headers)


@contextmanager
def launch_file(url: str) -> Iterator[Path]:
    """Yield a file that redirects to the URL. Only its owner can read it; deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="vestige-ui-"))
    try:
        path = folder / "open.html"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_PAGE.format(url=html.escape(url)))
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)
