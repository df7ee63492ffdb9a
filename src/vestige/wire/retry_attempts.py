"""Number the attempts at the same request.

Some SDKs send the number in a header (`x-stainless-retry-count`). Otherwise a retry is a request
with the same body, URL and parent after a failed one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from vestige.wire.header_redaction import find_header

if TYPE_CHECKING:
    from vestige.wire.outgoing_request import OutgoingRequest

FAILED_MAX = 256
"""Failed requests that are remembered: a retry follows soon or never."""

Key = tuple[str, str | None, str, str, int]


class Attempts:
    """The failed requests of this process, oldest first."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Key, int] = OrderedDict()

    def begin(self, run_id: str, parent_id: str | None, request: OutgoingRequest) -> int:
        """Return the number of the attempt, starting at 1."""
        counted = find_header(request.headers, "x-stainless-retry-count")
        if counted is not None and counted.isdecimal() and len(counted) < 6:
            return int(counted) + 1
        if not self._failed:
            return 1
        return self._failed.get(_key(run_id, parent_id, request), 0) + 1

    def failed(self, run_id: str, parent_id: str | None, request: OutgoingRequest) -> None:
        key = _key(run_id, parent_id, request)
        self._failed[key] = self._failed.pop(key, 0) + 1
        if len(self._failed) > FAILED_MAX:
            try:
                self._failed.popitem(last=False)
            except KeyError:
                pass  # another thread removed the last entry


def _key(run_id: str, parent_id: str | None, request: OutgoingRequest) -> Key:
    return run_id, parent_id, request.method, request.url, hash(request.body)
