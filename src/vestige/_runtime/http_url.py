"""URLs of servers that a user names in an option: what is sent there must arrive there."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from vestige.errors import UsageError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""Hosts to which plain HTTP is allowed: nothing leaves this machine."""


def parse_http_url(
    option: str, url: str, *, kind: str, expected: str, key_variable: str
) -> SplitResult:
    """Split a URL of `http` or `https`. Raise UsageError if it is not a valid one.

    `kind`: what the URL should be, for the message. `expected`: its parts. The key is not one of
    them: it is in the variable.
    """
    try:
        parts = urlsplit(url)
        port = parts.port  # raises if it is not a number
        (parts.hostname or "").encode("idna")  # raises if a label is empty or too long
    except ValueError as invalid:
        raise UsageError(f"{option}: {url!r} is not a valid URL ({invalid}).") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"{option}: {url!r} is not {kind}.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"{option}: too many parts (expected {expected}). Pass the key in {key_variable}."
        )
    if not (parts.path.isascii() and parts.path.isprintable()) or " " in parts.path:
        raise UsageError(f"{option}: {url!r}: invalid path (expected e.g. %20 for a space).")
    return parts


def reject_plain_http(option: str, url: str, parts: SplitResult, sent: str) -> None:
    """Raise UsageError for `http` to another machine. `sent`: what would go unencrypted."""
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise UsageError(
            f"{option}: {url}: plain HTTP sends the {sent} unencrypted. Use https://, or pass"
            " --plain-http."
        )
