"""A set of the seqs that were stored of a writer, as ranges.

A record is identified by (writer, seq), so this set makes it harmless to read a journal
twice. It needs no row per record: a writer without losses has one range. Gaps are
records that are missing, or have not arrived yet.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec


class SeqRanges:
    """Disjoint ranges of numbers, in ascending order."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: list[list[int]] | None = None) -> None:
        self._ranges = ranges or []

    @classmethod
    def parse(cls, text: str) -> SeqRanges:
        return cls(msgspec.json.decode(text, type=list[list[int]]))

    def render(self) -> str:
        return msgspec.json.encode(self._ranges).decode()

    def add(self, number: int) -> bool:
        """Add a number. Return whether it is new."""
        ranges = self._ranges
        if ranges and number == ranges[-1][1] + 1:  # the usual case: the next number
            ranges[-1][1] = number
            return True
        at = bisect_right(ranges, number, key=_first)
        before = ranges[at - 1] if at else None
        after = ranges[at] if at < len(ranges) else None
        if before is not None and number <= before[1]:
            return False
        joins_before = before is not None and number == before[1] + 1
        joins_after = after is not None and number == after[0] - 1
        if joins_before and joins_after:
            before[1] = after[1]  # type: ignore[index]  # both exist where both join
            del ranges[at]
        elif joins_before:
            before[1] = number  # type: ignore[index]
        elif joins_after:
            after[0] = number  # type: ignore[index]
        else:
            ranges.insert(at, [number, number])
        return True

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._ranges, number, key=_first)
        return at > 0 and number <= self._ranges[at - 1][1]

    @property
    def last(self) -> int:
        return self._ranges[-1][1] if self._ranges else 0

    @property
    def missing(self) -> int:
        """The count of numbers from 1 to the last that were never seen."""
        return self.last - sum(last - first + 1 for first, last in self._ranges)


def _first(pair: list[int]) -> int:
    return pair[0]
