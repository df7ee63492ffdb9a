"""Repetitions in a sequence: `ABABAB`, of any period, in n log n steps.

Every block of length 2^k gets a number, equal blocks the same one (Karp, Miller,
Rosenberg). Something of period p that comes three times contains, for 2^k <= p < 2^(k+1), a
block that starts at a multiple of 2^k and comes again p later: look there and nowhere
else, and extend what is found to both sides.

    list(find_repeats("xABABABy"))  ->  [Repeat(begin=1, end=7, period=2)]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LENGTH_MAX = 100_000
"""Of the sequence; of a longer one its end is looked at. The tables take 17 times its size."""

_LOOKED_AT_MAX = 4
"""Places where a block comes again, per block: more of them mean a shorter period, found below."""


@dataclass(frozen=True, slots=True, order=True)
class Repeat:
    """`sequence[begin:end]` has this period; the last repetition may be a part of one."""

    begin: int
    end: int
    period: int

    @property
    def count(self) -> int:
        """Whole repetitions."""
        return (self.end - self.begin) // self.period


def find_repeats(sequence: Sequence[Hashable], count_min: int = 3) -> list[Repeat]:
    """Maximal repetitions with at least `count_min` (3 or more) rounds, that do not overlap;
    of two that do, the longer, and then the shorter period."""
    assert count_min >= 3
    skipped = max(0, len(sequence) - LENGTH_MAX)
    tables = _number_blocks(sequence[skipped:])
    found: set[Repeat] = set()
    for level, table in enumerate(tables):
        _look(tables, level, table, found, count_min)
    kept: list[Repeat] = []
    covered = bytearray(len(tables[0]))
    for repeat in sorted(found, key=lambda r: (r.begin - r.end, r.period, r.begin)):
        if 1 not in covered[repeat.begin : repeat.end]:
            covered[repeat.begin : repeat.end] = b"\1" * (repeat.end - repeat.begin)
            kept.append(repeat)
    return sorted(Repeat(r.begin + skipped, r.end + skipped, r.period) for r in kept)


def _number_blocks(sequence: Sequence[Hashable]) -> list[list[int]]:
    """Table k numbers the blocks of length 2^k, one for each place where such a block begins."""
    numbers: dict[Hashable, int] = {}
    table = [numbers.setdefault(item, len(numbers)) for item in sequence]
    tables = [table]
    size = 1
    distinct = len(numbers)
    # Where no two blocks are the same, no two longer ones are.
    while distinct < len(table) > size and 3 * size <= len(sequence):
        pairs: dict[tuple[int, int], int] = {}
        table = [
            pairs.setdefault(pair, len(pairs)) for pair in zip(table, table[size:], strict=False)
        ]
        distinct = len(pairs)
        tables.append(table)
        size *= 2
    return tables


def _look(
    tables: list[list[int]], level: int, table: list[int], found: set[Repeat], count_min: int
) -> None:
    size = 1 << level
    places: dict[int, list[int]] = {}
    for place, block in enumerate(table):
        places.setdefault(block, []).append(place)
    last: dict[int, int] = {}
    """By period: where its last repetition ends, so that a long one is measured once."""
    for at in range(0, len(table), size):
        same = places[table[at]]
        first = bisect_right(same, at + size - 1)
        for again in same[first : first + _LOOKED_AT_MAX]:
            period = again - at
            if period >= 2 * size:
                break
            if last.get(period, -1) >= again:
                continue
            begin = at - _same_before(tables, at - 1, again - 1)
            end = again + _same_from(tables, at, again)
            last[period] = end
            if end - begin >= count_min * period:
                found.add(Repeat(begin, end, period))


def _same_from(tables: list[list[int]], one: int, other: int) -> int:
    """How many items are equal from here on. `one` < `other`."""
    begin = other
    for level in range(len(tables) - 1, -1, -1):
        table = tables[level]
        while other < len(table) and table[one] == table[other]:
            one += 1 << level
            other += 1 << level
    return other - begin


def _same_before(tables: list[list[int]], one: int, other: int) -> int:
    """How many items are equal up to here, backwards."""
    begin = one
    for level in range(len(tables) - 1, -1, -1):
        table, size = tables[level], 1 << level
        while one - size + 1 >= 0 and table[one - size + 1] == table[other - size + 1]:
            one -= size
            other -= size
    return begin - one
