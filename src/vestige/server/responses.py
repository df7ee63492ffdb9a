"""Answers: JSON, the one shape of errors, ETags, gzip, how long a browser may keep one.

Every error of the server, whatever route, is `{"error": code, "message": text, "details"?: {}}`
with the status that fits, and is never kept by anybody. Messages are ours, one line, and say
nothing about where the home is.
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

NO_STORE = "no-store"
PRIVATE = "private, no-cache"
"""Kept by the browser alone, and asked about each time (with its ETag)."""


class ApiError(Exception):  # it is an answer as much as an error
    """An error as it is answered."""

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
    """What one of our errors is over HTTP; None: it is a bug."""
    message = formatting.single_line(str(error).replace(str(home.root), "the home"), 2_000)
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
    """As JSON. What a trace held may be no valid text: it is escaped then, not refused."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, default=str).encode()


def packed(body: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """The body, compressed if that is wanted and worth it. Takes time: in a thread."""
    headers = {"vary": "accept-encoding"}
    if len(body) >= GZIP_MIN and takes_gzip(accept_encoding):
        return gzip.compress(body, GZIP_LEVEL, mtime=0), {**headers, "content-encoding": "gzip"}
    return body, headers


def takes_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def matches(if_none_match: str, etag: str) -> bool:
    """Has the client this very answer? Compared weakly: gzip or not is the same answer."""
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return etag.removeprefix("W/") in given or given == ["*"]
