"""Align two sequences by their longest common subsequence.

The result is exact. Common prefixes and suffixes are removed first, because most runs share
them. The rest is solved with bit vectors, one big integer per row (Hyyrö 2004): 20,000 steps
against 20,000 take a fraction of a second. If the rows would not fit in memory, the problem
is halved (Hirschberg 1975).

    alignment = align("abcd", "axcd")
    alignment.pairs        # [(0, 0), (2, 2), (3, 3)]
    alignment.first        # 1, the index of the first difference
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vestige.limits import MIB

ROWS_BYTES_MAX = 16 * MIB
"""Memory for bit vectors. A larger problem is halved."""

CELLS_MAX = 10**10
"""Pairs of steps to compare, a few seconds of work. A longer alignment is incomplete."""

FREQUENT = 64
"""Occurrences from which the bit vector of a key is cached. Few keys are this frequent."""


class Gap(NamedTuple):
    """A range between two common steps, on both sides. One of the two may be empty."""

    a_begin: int
    a_end: int
    b_begin: int
    b_end: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """The common steps of two sequences, as pairs of ascending indexes."""

    pairs: list[tuple[int, int]]
    a_count: int
    b_count: int
    complete: bool = True
    """False if the sequences were too long: steps after the last pair were not compared."""

    @property
    def first(self) -> int | None:
        """The index of the first difference, valid in both; None if the sequences are equal."""
        same = 0
        for a_at, b_at in self.pairs:
            if a_at != same or b_at != same:
                break
            same += 1
        return None if same == self.a_count == self.b_count else same

    def gaps(self) -> Iterator[Gap]:
        """Yield the ranges that are not common, in order."""
        a_next = b_next = 0
        for a_at, b_at in [*self.pairs, (self.a_count, self.b_count)]:
            if a_at > a_next or b_at > b_next:
                yield Gap(a_next, a_at, b_next, b_at)
            a_next, b_next = a_at + 1, b_at + 1


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> Alignment:
    """Return the longest common subsequence of two sequences of keys."""
    begin = 0
    shorter = min(len(a), len(b))
    while begin < shorter and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs = [(at, at) for at in range(begin)]
    complete = _align_middle(a, b, (begin, len(a) - end), (begin, len(b) - end), pairs)
    pairs.extend((len(a) - at, len(b) - at) for at in range(end, 0, -1))
    return Alignment(pairs, len(a), len(b), complete)


def _align_middle(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_range: tuple[int, int],
    b_range: tuple[int, int],
    pairs: list[tuple[int, int]],
) -> bool:
    """Add the common pairs of both ranges to `pairs`. Return False if a range was too long.

    Keys that only one side has cannot be common, so they are dropped first.
    """
    in_b = set(b[b_range[0] : b_range[1]])
    a_shared = [at for at in range(*a_range) if a[at] in in_b]
    in_a = {a[at] for at in a_shared}
    b_shared = [at for at in range(*b_range) if b[at] in in_a]
    complete = len(a_shared) * len(b_shared) <= CELLS_MAX
    if not complete:
        bound = int(CELLS_MAX**0.5)
        a_shared, b_shared = a_shared[:bound], b_shared[:bound]
    # Keys are compared and looked up often. Small integers make both cheap.
    numbers: dict[Hashable, int] = {}
    a_keys = [numbers.setdefault(a[at], len(numbers)) for at in a_shared]
    b_keys = [numbers.setdefault(b[at], len(numbers)) for at in b_shared]
    pairs.extend((a_shared[x], b_shared[y]) for x, y in _common_pairs(a_keys, b_keys))
    return complete


def _common_pairs(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    if len(a) < 2 or len(a) * len(b) // 8 <= ROWS_BYTES_MAX:
        return _trace_pairs(len(a), len(b), _packed_rows(a, b))
    middle = len(a) // 2
    forward = _prefix_lengths(_last_row(a[:middle], b), len(b))
    backward = _prefix_lengths(_last_row(a[middle:][::-1], b[::-1]), len(b))
    split = max(range(len(b) + 1), key=lambda at: forward[at] + backward[len(b) - at])
    left = _common_pairs(a[:middle], b[:split])
    right = _common_pairs(a[middle:], b[split:])
    return [*left, *((x + middle, y + split) for x, y in right)]


class _PositionMasks:
    """The positions of each key in a sequence, as a bit mask. Masks of frequent keys are cached."""

    def __init__(self, keys: list[int]) -> None:
        self._size = len(keys) // 8 + 1
        self._positions: dict[int, list[int]] = {}
        self._cached: dict[int, int] = {}
        for at, key in enumerate(keys):
            self._positions.setdefault(key, []).append(at)

    def get(self, key: int) -> int:
        cached = self._cached.get(key)
        if cached is not None:
            return cached
        bits = bytearray(self._size)
        positions = self._positions.get(key, ())
        for at in positions:
            bits[at >> 3] |= 1 << (at & 7)
        mask = int.from_bytes(bits, "little")
        if len(positions) >= FREQUENT:
            self._cached[key] = mask
        return mask


def _iter_rows(a: list[int], b: list[int]) -> Iterator[int]:
    """Yield a row per step of `a`. Bit j is 0 if the common length grows from b[:j] to b[:j+1]."""
    masks, full = _PositionMasks(b), (1 << len(b)) - 1
    row = full
    for key in a:
        matched = row & masks.get(key)
        row = ((row + matched) | (row - matched)) & full
        yield row


def _packed_rows(a: list[int], b: list[int]) -> list[bytes]:
    # Rows are bytes because a test of one bit of a large integer copies the integer.
    size = len(b) // 8 + 1
    return [row.to_bytes(size, "little") for row in _iter_rows(a, b)]


def _last_row(a: list[int], b: list[int]) -> int:
    return deque(_iter_rows(a, b), maxlen=1)[0]


def _prefix_lengths(row: int, count: int) -> list[int]:
    """Return the common length with each prefix of `b`."""
    lengths = [0]
    for bit in reversed(f"{row:0{count}b}"):
        lengths.append(lengths[-1] + (bit == "0"))
    return lengths


def _trace_pairs(a_count: int, b_count: int, rows: list[bytes]) -> list[tuple[int, int]]:
    """Walk the rows back from the last corner, and return the common pairs."""
    pairs = []
    x, y = a_count, b_count
    while x and y:
        byte, bit = (y - 1) >> 3, 1 << ((y - 1) & 7)
        if rows[x - 1][byte] & bit:
            y -= 1
            continue
        x -= 1
        if x and not rows[x - 1][byte] & bit:
            continue
        y -= 1
        pairs.append((x, y))
    pairs.reverse()
    return pairs


class Change(NamedTuple):
    """An element that is equal on both sides, changed, or present on one side only."""

    mark: str
    """`=` equal, `~` changed, `-` only in the first, `+` only in the second."""
    a: int | None
    b: int | None


def find_changes(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_loose: Sequence[Hashable],
    b_loose: Sequence[Hashable],
) -> tuple[list[Change], bool]:
    """Return all elements of both sequences in order, and whether all were compared.

    Equal keys in `a` and `b` make an equal element. Between two of these, equal keys in
    `a_loose` and `b_loose` make a changed element.
    """
    alignment = align(a, b)
    same = iter(alignment.pairs)
    found: list[Change] = []
    for gap in alignment.gaps():
        for a_at, b_at in same:
            if a_at >= gap.a_end or b_at >= gap.b_end:
                break  # This pair ends the gap, so it is added after the gap.
            found.append(Change("=", a_at, b_at))
        else:
            a_at = b_at = -1
        _add_gap(gap, a_loose, b_loose, found)
        if a_at >= 0:
            found.append(Change("=", a_at, b_at))
    found.extend(Change("=", a_at, b_at) for a_at, b_at in same)
    return found, alignment.complete


def _add_gap(
    gap: Gap, a_loose: Sequence[Hashable], b_loose: Sequence[Hashable], found: list[Change]
) -> None:
    inner = align(a_loose[gap.a_begin : gap.a_end], b_loose[gap.b_begin : gap.b_end])
    a_next, b_next = gap.a_begin, gap.b_begin
    for a_at, b_at in [*inner.pairs, (inner.a_count, inner.b_count)]:
        found.extend(Change("-", at, None) for at in range(a_next, gap.a_begin + a_at))
        found.extend(Change("+", None, at) for at in range(b_next, gap.b_begin + b_at))
        if a_at < inner.a_count:
            found.append(Change("~", gap.a_begin + a_at, gap.b_begin + b_at))
        a_next, b_next = gap.a_begin + a_at + 1, gap.b_begin + b_at + 1
