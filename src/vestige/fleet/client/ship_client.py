"""HTTP client that sends shipments to a server.

    client = ShipClient("https://vestige.example", key)
    reply = client.send(packed)           # OSError: the server could not be reached

Standard library only. One connection is reused, and reopened when it breaks. Certificates are
verified. A key is sent over plain HTTP only to this machine, unless `plain_http` is set. Redirects
are not followed: they would send the key to another server.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

import msgspec

from vestige._runtime.http_url import parse_http_url, reject_plain_http
from vestige.errors import UsageError
from vestige.limits import MIB, SHIP_TIMEOUT_S

PATH = "/api/v1/ingest"
_REPLY_MAX = MIB


@dataclass(frozen=True, slots=True)
class ServerReply:
    """The server's response to a shipment."""

    status: int
    data: dict[str, Any]
    """The JSON object; empty if there is none."""
    retry_after_s: float | None

    @property
    def message(self) -> str:
        """Return the error message, or the status phrase, as one line."""
        message = self.data.get("message")
        text = message if isinstance(message, str) else http.client.responses.get(self.status, "")
        return " ".join(text.split())[:500]


class ShipClient:
    """A connection to one server."""

    def __init__(
        self, url: str, key: str, *, ca_file: Path | None = None, plain_http: bool = False
    ) -> None:
        parts = _check_url(url, plain_http)
        assert parts.hostname is not None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + PATH
        self._key = key
        self._tls = _make_tls_context(ca_file) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def send(self, packed: bytes) -> ServerReply:
        """Send a shipment. Raises OSError if no reply came; it may have arrived all the same."""
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
            # A server may close an idle connection: retry once over a new one.
            if not reused:
                raise
            return self._exchange(packed, headers)

    def _exchange(self, packed: bytes, headers: dict[str, str]) -> ServerReply:
        connection = self._connect()
        try:
            connection.request("POST", self._path, packed, headers)
            response = connection.getresponse()
            body = response.read(_REPLY_MAX)
        except http.client.HTTPException as error:
            self.close()
            raise ConnectionError(f"invalid response ({type(error).__name__})") from error
        except OSError:
            self.close()
            raise
        if response.will_close or not response.isclosed():
            self.close()
        return ServerReply(
            response.status, _parse_object(body), _parse_seconds(response.getheader("Retry-After"))
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


def _check_url(url: str, plain_http: bool) -> SplitResult:
    parts = parse_http_url(
        "--to",
        url,
        kind="a server's URL (expected https://HOST[:PORT])",
        expected="host, port and path",
        key_variable="VESTIGE_SHIP_KEY",
    )
    if not plain_http:
        reject_plain_http("--to", url, parts, "key")
    return parts


def _make_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca-file: {ca_file}: cannot be loaded ({error}).") from None


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parse_seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
