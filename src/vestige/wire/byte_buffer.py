"""Tape: bytes as they pass, kept up to a bound and counted beyond it, with when they came.

    tape.add(chunk, now_ns)
    tape.kept           # the beginning, at most BODY_MAX
    tape.total          # of all that passed

Small chunks are joined as they come: ten thousand of them cost their bytes, not ten
thousand objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

from vestige.limits import BODY_MAX, KIB, MIB

MARKS_MAX = 16 * KIB
"""Chunks whose time is kept: the first token comes early, however long the stream."""

DIGEST_FROM = MIB
"""A body is hashed as it passes once it is longer than this: at the bound it would be too late."""

MARKER_MAX = 256
"""Bytes kept free for the words that say that a body was cut."""


class ByteBuffer:
    """One body, passing."""

    __slots__ = ("_digest", "_ends", "_times", "kept", "kept_max", "total")

    def __init__(self, kept_max: int = BODY_MAX - MARKER_MAX) -> None:
        self.kept = bytearray()
        self.kept_max = kept_max
        self.total = 0
        self._ends = array("q")
        self._times = array("q")
        self._digest: Any = None

    def add(self, chunk: bytes, now_ns: int) -> None:
        """The next bytes, as they came."""
        before = self.total
        self.total = total = before + len(chunk)
        if len(self._ends) < MARKS_MAX:
            self._ends.append(total)
            self._times.append(now_ns)
        if total <= self.kept_max:
            self.kept += chunk
        elif before < self.kept_max:
            self.kept += memoryview(chunk)[: self.kept_max - before]
        if total > DIGEST_FROM:
            self._hash(chunk, before)

    def _hash(self, chunk: bytes, before: int) -> None:
        if self._digest is None:
            import hashlib  # most bodies are short

            self._digest = hashlib.sha256(memoryview(self.kept)[:before])
        self._digest.update(chunk)

    @property
    def cut(self) -> bool:
        """More passed than was kept."""
        return self.total > len(self.kept)

    @property
    def sha256(self) -> str | None:
        """Of all that passed, once it is long enough to need one."""
        return None if self._digest is None else str(self._digest.hexdigest())

    def time_of(self, offset: int) -> int | None:
        """When the byte before `offset` came."""
        at = bisect_left(self._ends, offset)
        return self._times[at] if at < len(self._times) else None

    @property
    def ends(self) -> array[int]:
        """Where the first chunks ended."""
        return self._ends
