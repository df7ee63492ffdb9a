"""Responses: JSON, errors, ETags, gzip, cache headers.

Every error of every route is `{"error": code, "message": text, "details"?: {}}` and is never
cached. A message is one line and does not contain the path of the home.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from vestige.errors import (
    AmbiguousIdError,
    KeysError,
    NotFoundError,
    StoreError,
    UsageError,
    VestigeError,
)
from vestige.home import Home
from vestige.limits import GZIP_LEVEL, GZIP_MIN
from vestige.query import formatting
from vestige.record.redaction.output_redaction import redact_text

NO_STORE = "no-store"
PRIVATE = "private, no-cache"
"""Cached only by the browser, and revalidated each time (with the ETag)."""


class ApiError(Exception):
    """An error that is sent as the response."""

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message
        self.details = details
        self.headers = headers or {}

    def response(self) -> Response:
        body: dict[str, Any] = {"error": self.error, "message": self.message}
        if self.details:
            body["details"] = self.details
        return Response(
            encode(body),
            self.status,
            {**self.headers, "cache-control": NO_STORE, "content-type": "application/json"},
        )


def api_error_of(error: Exception, home: Home) -> ApiError | None:
    """Convert an error of Vestige to an ApiError. None: the error is a bug."""
    text = redact_text(str(error).replace(str(home.root), "the home"))
    message = formatting.single_line(text, 2_000)
    if isinstance(error, AmbiguousIdError):
        return ApiError(400, "ambiguous_id", message, {"candidates": error.candidates})
    if isinstance(error, NotFoundError):
        return ApiError(404, "not_found", message)
    if isinstance(error, UsageError):
        return ApiError(400, "validation_error", message)
    if isinstance(error, StoreError | KeysError):
        return ApiError(503, "unavailable", message, headers={"retry-after": "1"})
    if isinstance(error, VestigeError):
        return ApiError(400, "validation_error", message)
    return None


def encode(value: Any) -> bytes:
    """Encode as JSON. Recorded text that is not valid Unicode is escaped, not refused."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, default=str).encode()


def compress(body: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """Compress a long body if the client accepts it. Call it in a thread: it takes time."""
    headers = {"vary": "accept-encoding"}
    if len(body) >= GZIP_MIN and accepts_gzip(accept_encoding):
        return gzip.compress(body, GZIP_LEVEL, mtime=0), {**headers, "content-encoding": "gzip"}
    return body, headers


def accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def matches(if_none_match: str, etag: str) -> bool:
    """Return whether the client's ETags contain this one. Weak comparison: gzip is ignored."""
    etags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return etag.removeprefix("W/") in etags or etags == ["*"]
