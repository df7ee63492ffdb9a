"""Find repetitions of any period in a sequence (`ABABAB`), in O(n log n).

Every block of length 2^k gets a number, and equal blocks get the same number (Karp, Miller,
Rosenberg). A pattern of period p that occurs three times contains, for 2^k <= p < 2^(k+1), a block
that starts at a multiple of 2^k and occurs again p later. So only these blocks are compared, and
each match is extended to both sides.

    list(find_repeats("xABABABy"))  ->  [Repeat(begin=1, end=7, period=2)]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LENGTH_MAX = 100_000
"""Only the end of a longer sequence is searched: the tables take 17 times its size."""

_MATCHES_MAX = 4
"""Later occurrences compared per block. More of them mean a shorter period, found separately."""


@dataclass(frozen=True, slots=True, order=True)
class Repeat:
    """A part `sequence[begin:end]` with this period. The last repetition may be incomplete."""

    begin: int
    end: int
    period: int

    @property
    def count(self) -> int:
        """Number of complete repetitions."""
        return (self.end - self.begin) // self.period


def find_repeats(sequence: Sequence[Hashable], count_min: int = 3) -> list[Repeat]:
    """Return maximal repetitions, without overlaps, of at least `count_min` (3 or more) rounds.

    Of two that overlap, the longer one is returned, or else the one with the shorter period.
    """
    assert count_min >= 3
    skipped = max(0, len(sequence) - LENGTH_MAX)
    tables = _number_blocks(sequence[skipped:])
    found: set[Repeat] = set()
    for level, table in enumerate(tables):
        _find_at_level(tables, level, table, found, count_min)
    selected: list[Repeat] = []
    covered = bytearray(len(tables[0]))
    for repeat in sorted(found, key=lambda r: (r.begin - r.end, r.period, r.begin)):
        if 1 not in covered[repeat.begin : repeat.end]:
            covered[repeat.begin : repeat.end] = b"\1" * (repeat.end - repeat.begin)
            selected.append(repeat)
    return sorted(Repeat(r.begin + skipped, r.end + skipped, r.period) for r in selected)


def _number_blocks(sequence: Sequence[Hashable]) -> list[list[int]]:
    """Return tables: table k has the number of the block of length 2^k at each index."""
    numbers: dict[Hashable, int] = {}
    table = [numbers.setdefault(item, len(numbers)) for item in sequence]
    tables = [table]
    size = 1
    distinct = len(numbers)
    # If all blocks of a length are different, all longer blocks are, too.
    while distinct < len(table) > size and 3 * size <= len(sequence):
        pairs: dict[tuple[int, int], int] = {}
        table = [
            pairs.setdefault(pair, len(pairs)) for pair in zip(table, table[size:], strict=False)
        ]
        distinct = len(pairs)
        tables.append(table)
        size *= 2
    return tables


def _find_at_level(
    tables: list[list[int]], level: int, table: list[int], found: set[Repeat], count_min: int
) -> None:
    size = 1 << level
    indexes: dict[int, list[int]] = {}
    for index, block in enumerate(table):
        indexes.setdefault(block, []).append(index)
    measured: dict[int, int] = {}
    """End of the last repetition by period, so that a long one is measured once."""
    for first in range(0, len(table), size):
        equal = indexes[table[first]]
        start = bisect_right(equal, first + size - 1)
        for second in equal[start : start + _MATCHES_MAX]:
            period = second - first
            if period >= 2 * size:
                break
            if measured.get(period, -1) >= second:
                continue
            begin = first - _count_equal_before(tables, first - 1, second - 1)
            end = second + _count_equal_from(tables, first, second)
            measured[period] = end
            if end - begin >= count_min * period:
                found.add(Repeat(begin, end, period))


def _count_equal_from(tables: list[list[int]], first: int, second: int) -> int:
    """Return the number of equal items from these indexes on, where `first` < `second`."""
    begin = second
    for level in range(len(tables) - 1, -1, -1):
        table = tables[level]
        while second < len(table) and table[first] == table[second]:
            first += 1 << level
            second += 1 << level
    return second - begin


def _count_equal_before(tables: list[list[int]], first: int, second: int) -> int:
    """Return the number of equal items up to these indexes, backwards."""
    begin = first
    for level in range(len(tables) - 1, -1, -1):
        table, size = tables[level], 1 << level
        while first - size + 1 >= 0 and table[first - size + 1] == table[second - size + 1]:
            first -= size
            second -= size
    return begin - first
