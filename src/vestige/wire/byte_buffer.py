"""A bounded buffer for a streamed body, with the arrival time of each chunk.

    buffer.add(chunk, now_ns)
    buffer.data         # the beginning, at most BODY_MAX bytes
    buffer.total        # number of bytes added

Chunks are joined as they arrive: ten thousand of them cost their bytes, not ten thousand objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

from vestige.limits import BODY_MAX, KIB, MIB

MARKS_MAX = 16 * KIB
"""Chunks whose time is stored: the first token arrives early, however long the stream."""

DIGEST_FROM = MIB
"""Length from which a body is hashed: hashing must start before the first byte is dropped."""

MARKER_MAX = 256
"""Bytes reserved for the text that marks a truncated body."""


class ByteBuffer:
    """The first bytes of a body, its total length and, if it is long, its hash."""

    __slots__ = ("_digest", "_ends", "_times", "data", "data_max", "total")

    def __init__(self, data_max: int = BODY_MAX - MARKER_MAX) -> None:
        self.data = bytearray()
        self.data_max = data_max
        self.total = 0
        self._ends = array("q")
        self._times = array("q")
        self._digest: Any = None

    def add(self, chunk: bytes, now_ns: int) -> None:
        """Add the next chunk."""
        before = self.total
        self.total = total = before + len(chunk)
        if len(self._ends) < MARKS_MAX:
            self._ends.append(total)
            self._times.append(now_ns)
        if total <= self.data_max:
            self.data += chunk
        elif before < self.data_max:
            self.data += memoryview(chunk)[: self.data_max - before]
        if total > DIGEST_FROM:
            self._hash(chunk, before)

    def _hash(self, chunk: bytes, before: int) -> None:
        if self._digest is None:
            import hashlib  # most bodies are short

            self._digest = hashlib.sha256(memoryview(self.data)[:before])
        self._digest.update(chunk)

    @property
    def truncated(self) -> bool:
        return self.total > len(self.data)

    @property
    def sha256(self) -> str | None:
        """Return the hash of all bytes. None: the body is short."""
        return None if self._digest is None else str(self._digest.hexdigest())

    def time_of(self, offset: int) -> int | None:
        """Return the arrival time of the byte before `offset`."""
        at = bisect_left(self._ends, offset)
        return self._times[at] if at < len(self._times) else None

    @property
    def ends(self) -> array[int]:
        """Return the end offsets of the first chunks."""
        return self._ends
