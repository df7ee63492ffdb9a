"""Tokens of a task's requests, which are in the messages that the extension shows.

    find = RequestFinder(read_requests(path))
    find.usage(time_ms)                       # of the answer that was stored at this time

A message `api_req_started` has the request's time when it began, and a JSON text with the tokens
when it ended. Requests that failed have no answer in the history.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.cline.constants import UI_MESSAGES
from vestige.formats.lenient_json import decode_items, decode_object, read_document
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.record.types import Attributes

_STARTED: Final = b'"api_req_started"'


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request to a model."""

    time_ms: int
    usage: Attributes
    cancelled: str
    """The reason why an answer is missing; else empty."""


def read_requests(history: Path) -> list[Request]:
    """Return the requests of a task in order; none if they cannot be read."""
    path = history.with_name(UI_MESSAGES)
    if path.is_symlink() or not path.is_file():
        return []
    try:
        items = decode_items(read_document(path))
    except UnreadableError:
        return []
    found = []
    for item in items:
        if _STARTED not in bytes(item):
            continue
        message = decode_object(item)
        if message.get("say") == "api_req_started":
            details = decode_object(to_text(message.get("text")).encode(errors="replace"))
            reason = to_text(details.get("cancelReason"))
            found.append(Request(to_count(message.get("ts")) or 0, read_usage(details), reason))
    return found


def read_usage(details: dict[str, Any]) -> Attributes:
    """Return the tokens and the cost of a request. Input includes the cache.

    Cline stores the input without the cache. Newer versions of Roo and Kilo, which name the
    protocol, store all of it.
    """
    fresh = to_count(details.get("tokensIn"))
    read, written = to_count(details.get("cacheReads")), to_count(details.get("cacheWrites"))
    cached = (read or 0) + (written or 0)
    is_total = "apiProtocol" in details and fresh is not None and fresh >= cached
    usage = count_attributes(
        input_tokens=fresh if fresh is None or is_total else fresh + cached,
        output_tokens=details.get("tokensOut"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    return usage | read_cost(details.get("cost"))


def read_cost(cost: Any) -> Attributes:
    """Return the cost of a request, if it is known."""
    is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    return {"cost_usd": float(cost)} if is_number and 0 < cost < 1e9 else {}


class RequestFinder:
    """Assigns requests to answers, both in order."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._next = 0
        self.cancelled: list[Request] = []
        """Requests without an answer, until they are taken."""

    def usage(self, time_ms: int | None) -> Attributes:
        """Return the tokens of the next answer: of the last request that began before it."""
        found: Request | None = None
        while self._next < len(self._requests):
            request = self._requests[self._next]
            is_later = time_ms is not None and request.time_ms > time_ms
            if is_later or (time_ms is None and found is not None):
                break
            if found is not None:
                self.cancelled.append(found)
            found = request
            self._next += 1
        return found.usage if found is not None else {}
