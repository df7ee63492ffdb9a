"""The built viewer: one HTML file and its Content-Security-Policy.

    viewer = read_viewer()
    viewer.html                                  # script and style inlined
    viewer.policy("'self'")                      # allows only this script and style

The page is built by hatch_build.py into page/ beside this module; it is not in the repository.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vestige.errors import UnreadableError

PAGE = Path(__file__).parent / "page" / "index.html"

ANSWERS = "<!--vestige:answers-->"
"""Marker that an export replaces with the API responses that the page needs."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The page and the hashes of its scripts and styles."""

    html: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...]

    def policy(self, connect: str, *, framed: bool = True) -> str:
        """Return a policy that allows the page's own script and style, and requests to `connect`.

        Frames may only show `blob:` documents of the page itself: the preview of recorded HTML,
        whose sandbox allows nothing. `framed` adds frame-ancestors, which only a header can set.
        Trusted types are forbidden, so no text can become markup.
        """
        rules = [
            "default-src 'none'",
            f"script-src {' '.join(self.scripts)}",
            f"style-src {' '.join(self.styles)}",
            "img-src data:",
            "frame-src blob:",
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
            *(["frame-ancestors 'none'"] if framed else ()),
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
        return "; ".join(rules)


def is_built() -> bool:
    return PAGE.exists()


def read_viewer() -> Viewer:
    """Read the built page. UnreadableError explains how to build it."""
    try:
        changed_ns = PAGE.stat().st_mtime_ns
    except FileNotFoundError:
        raise UnreadableError(
            "viewer: this installation has no page (it is built with the package)."
            " Run `pip install -e .`, or `python hatch_build.py` in a checkout."
        ) from None
    return _read(changed_ns)


@cache
def _read(changed_ns: int) -> Viewer:
    html = PAGE.read_text(encoding="utf-8")
    return Viewer(html, _hashes(html, "script"), _hashes(html, "style"))


def _hashes(html: str, tag: str) -> tuple[str, ...]:
    texts = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return tuple(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
