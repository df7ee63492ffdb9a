"""Hand a parcel to a server over HTTP, and understand what it says.

    link = Link("https://vestige.example", key)
    answer = link.send(packed)            # Answer; OSError: it could not be reached

Standard library only. One connection is kept and made anew when it breaks. Certificates are
checked; a key goes over plain HTTP only to this machine, unless one insists. Redirects are not
followed: they would carry the key to somebody else.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from vestige.errors import UsageError
from vestige.limits import MIB, SHIP_TIMEOUT_S

PATH = "/api/v1/ingest"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ANSWER_MAX = MIB


@dataclass(frozen=True, slots=True)
class ServerReply:
    """What the server said."""

    status: int
    data: dict[str, Any]
    """Its JSON; empty where it sent none."""
    retry_after_s: float | None

    @property
    def message(self) -> str:
        """One line, whatever came."""
        said = self.data.get("message")
        text = said if isinstance(said, str) else http.client.responses.get(self.status, "")
        return " ".join(text.split())[:500]


class ShipClient:
    """A way to one server."""

    def __init__(
        self, url: str, key: str, *, ca_file: Path | None = None, plain_http: bool = False
    ) -> None:
        parts = _check_url(url, plain_http)
        assert parts.hostname is not None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + PATH
        self._key = key
        self._tls = _context(ca_file) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def send(self, packed: bytes) -> ServerReply:
        """One parcel; OSError when no answer came, and then it may or may not have arrived."""
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/x-ndjson",
            "Content-Encoding": "zstd",
            "Accept": "application/json",
        }
        reused = self._connection is not None
        try:
            return self._exchange(packed, headers)
        except ConnectionError:
            # A server closes a connection that was idle: that is no failure, and it sends again.
            if not reused:
                raise
            return self._exchange(packed, headers)

    def _exchange(self, packed: bytes, headers: dict[str, str]) -> ServerReply:
        connection = self._connect()
        try:
            connection.request("POST", self._path, packed, headers)
            response = connection.getresponse()
            body = response.read(_ANSWER_MAX)
        except http.client.HTTPException as error:
            self.close()
            raise ConnectionError(f"no valid answer ({type(error).__name__})") from error
        except OSError:
            self.close()
            raise
        if response.will_close or not response.isclosed():
            self.close()
        return ServerReply(
            response.status, _object(body), _seconds(response.getheader("Retry-After"))
        )

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._tls is None:
                self._connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=SHIP_TIMEOUT_S
                )
            else:
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=SHIP_TIMEOUT_S, context=self._tls
                )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check_url(url: str, plain_http: bool) -> Any:
    try:
        parts = urlsplit(url)
        port = parts.port  # raises for one that is no number
        (parts.hostname or "").encode("idna")  # as it is asked for: no label empty or too long
    except ValueError as error:
        raise UsageError(f"--to: {url!r} is no valid URL ({error}).") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"--to: {url!r} is no URL of a server (expected https://HOST[:PORT]).")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("--to: only a host, a port and a path. Give the key in VESTIGE_SHIP_KEY.")
    if not (parts.path.isascii() and parts.path.isprintable()) or " " in parts.path:
        raise UsageError(
            f"--to: {url!r}: its path is no path of a URL (expected e.g. %20, no space)."
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not plain_http:
        raise UsageError(
            f"--to: {url}: plain HTTP shows the key to everyone on the way. Use https://, or insist"
            " with --plain-http."
        )
    return parts


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca-file: {ca_file}: cannot be used ({error}).") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
