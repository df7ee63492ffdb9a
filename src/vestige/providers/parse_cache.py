"""Values parsed from bytes that occur again soon, such as the messages of a growing history.

Clients send the history again with each call, so most messages of a request were parsed before.

    messages = RecentValues(parse_message)
    messages.get(raw, item)          # parse_message(item), or the value of equal bytes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

RAW_MAX = 16 * 1024
"""Longer values are not kept."""
GENERATION_BYTES = 4 * 1024 * 1024
"""Bytes after which values that were not used again are dropped; twice this is kept at most."""

Source = TypeVar("Source")
Value = TypeVar("Value")


class RecentValues(Generic[Source, Value]):
    """Results of a pure function by the bytes of its argument. Values must not be changed."""

    def __init__(self, parse: Callable[[Source], Value]) -> None:
        self._parse = parse
        self._new: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}
        self._size = 0

    def get(self, raw: bytes, item: Source) -> Value:
        """Return the parsed item. `raw` are its bytes; empty if they are not known."""
        if not raw or len(raw) > RAW_MAX:
            return self._parse(item)
        value = self._new.get(raw)
        if value is None:
            value = self._old.get(raw)
            value = self._parse(item) if value is None else value
            if self._size > GENERATION_BYTES:
                self._new, self._old, self._size = {}, self._new, 0
            self._new[raw] = value
            self._size += len(raw)
        return value
