"""Which attempt at the same request this is.

SDKs that retry say so in a header (`x-stainless-retry-count`). Elsewhere an attempt is known by being the
same bytes to the same place, from the same parent, after one that failed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from vestige.wire.headers import find_header

if TYPE_CHECKING:
    from vestige.wire.outgoing_request import OutgoingRequest

FAILED_MAX = 256
"""Failed requests that are remembered: a retry follows soon, or never."""

Key = tuple[str, str | None, str, str, int]


class Attempts:
    """The failed requests of this process, the latest last."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Key, int] = OrderedDict()

    def begin(self, run_id: str, parent_id: str | None, ask: OutgoingRequest) -> int:
        """1 for a first attempt."""
        counted = find_header(ask.headers, "x-stainless-retry-count")
        if counted is not None and counted.isdecimal() and len(counted) < 6:
            return int(counted) + 1
        if not self._failed:
            return 1
        return self._failed.get(_key(run_id, parent_id, ask), 0) + 1

    def failed(self, run_id: str, parent_id: str | None, ask: OutgoingRequest) -> None:
        key = _key(run_id, parent_id, ask)
        self._failed[key] = self._failed.pop(key, 0) + 1
        if len(self._failed) > FAILED_MAX:
            try:
                self._failed.popitem(last=False)
            except KeyError:
                pass  # another thread was quicker


def _key(run_id: str, parent_id: str | None, ask: OutgoingRequest) -> Key:
    return run_id, parent_id, ask.method, ask.url, hash(ask.body)
