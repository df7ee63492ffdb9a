"""Align two sequences: which steps of one are which steps of the other.

The longest common subsequence, exactly. Common beginnings and ends are taken off first (most
runs are alike for long); the middle is solved with bit vectors, one big integer per row, so
that 20,000 steps against 20,000 take a fraction of a second (Hyyrö 2004). Where the rows
would not fit in memory, the problem is halved first (Hirschberg 1975), which stays exact.

    alignment = align("abcd", "axcd")
    alignment.pairs        # [(0, 0), (2, 2), (3, 3)]
    alignment.first        # 1: the first step that is not the same
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vestige.limits import MIB

ROWS_BYTES_MAX = 16 * MIB
"""Of bit vectors that are held at once; above it the problem is halved."""

CELLS_MAX = 10**10
"""Pairs of steps that are looked at, some seconds' worth. What is longer is cut, and says so."""

FREQUENT = 64
"""A key that stands this often has its bit vector kept; that many cannot fill the memory."""


class Gap(NamedTuple):
    """A stretch between two common steps: what only one side has, or both have differently."""

    a_begin: int
    a_end: int
    b_begin: int
    b_end: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which steps are common. Pairs rise on both sides."""

    pairs: list[tuple[int, int]]
    a_count: int
    b_count: int
    complete: bool = True
    """False: too long to align to the end; the steps after the last pair were not looked at."""

    @property
    def first(self) -> int | None:
        """Where the two part ways, an index into both; None: they never do."""
        same = 0
        for a_at, b_at in self.pairs:
            if a_at != same or b_at != same:
                break
            same += 1
        return None if same == self.a_count == self.b_count else same

    def gaps(self) -> Iterator[Gap]:
        """The stretches that are not common, in order."""
        a_next = b_next = 0
        for a_at, b_at in [*self.pairs, (self.a_count, self.b_count)]:
            if a_at > a_next or b_at > b_next:
                yield Gap(a_next, a_at, b_next, b_at)
            a_next, b_next = a_at + 1, b_at + 1


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> Alignment:
    """The longest common subsequence of two sequences of keys."""
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
    """Add the middle's pairs. What only one side has cannot be common, and is left out."""
    in_b = set(b[b_range[0] : b_range[1]])
    a_kept = [at for at in range(*a_range) if a[at] in in_b]
    in_a = {a[at] for at in a_kept}
    b_kept = [at for at in range(*b_range) if b[at] in in_a]
    complete = len(a_kept) * len(b_kept) <= CELLS_MAX
    if not complete:
        bound = int(CELLS_MAX**0.5)
        a_kept, b_kept = a_kept[:bound], b_kept[:bound]
    # Small numbers instead of keys: compared and looked up far more often than made.
    numbers: dict[Hashable, int] = {}
    a_keys = [numbers.setdefault(a[at], len(numbers)) for at in a_kept]
    b_keys = [numbers.setdefault(b[at], len(numbers)) for at in b_kept]
    pairs.extend((a_kept[x], b_kept[y]) for x, y in _common(a_keys, b_keys))
    return complete


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    if len(a) < 2 or len(a) * len(b) // 8 <= ROWS_BYTES_MAX:
        return _trace(len(a), len(b), _rows(a, b))
    middle = len(a) // 2
    ahead = _prefix_lengths(_last_row(a[:middle], b), len(b))
    behind = _prefix_lengths(_last_row(a[middle:][::-1], b[::-1]), len(b))
    split = max(range(len(b) + 1), key=lambda at: ahead[at] + behind[len(b) - at])
    left = _common(a[:middle], b[:split])
    right = _common(a[middle:], b[split:])
    return [*left, *((x + middle, y + split) for x, y in right)]


class _Masks:
    """For each key, a bit wherever it stands in a sequence. Frequent ones are kept."""

    def __init__(self, keys: list[int]) -> None:
        self._size = len(keys) // 8 + 1
        self._places: dict[int, list[int]] = {}
        self._kept: dict[int, int] = {}
        for at, key in enumerate(keys):
            self._places.setdefault(key, []).append(at)

    def of(self, key: int) -> int:
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        bits = bytearray(self._size)
        places = self._places.get(key, ())
        for at in places:
            bits[at >> 3] |= 1 << (at & 7)
        mask = int.from_bytes(bits, "little")
        if len(places) >= FREQUENT:
            self._kept[key] = mask
        return mask


def _walk(a: list[int], b: list[int]) -> Iterator[int]:
    """After each step of `a`: bit j is 0 where the common length grows from b[:j] to b[:j + 1]."""
    masks, full = _Masks(b), (1 << len(b)) - 1
    row = full
    for key in a:
        matched = row & masks.of(key)
        row = ((row + matched) | (row - matched)) & full
        yield row


def _rows(a: list[int], b: list[int]) -> list[bytes]:
    # As bytes: to look at one bit of a large integer copies it.
    size = len(b) // 8 + 1
    return [row.to_bytes(size, "little") for row in _walk(a, b)]


def _last_row(a: list[int], b: list[int]) -> int:
    row = 0
    for row in _walk(a, b):  # noqa: B007  # only the last one is wanted
        pass
    return row


def _prefix_lengths(row: int, count: int) -> list[int]:
    """The common length with each beginning of `b`."""
    lengths = [0]
    for bit in reversed(f"{row:0{count}b}"):
        lengths.append(lengths[-1] + (bit == "0"))
    return lengths


def _trace(a_count: int, b_count: int, rows: list[bytes]) -> list[tuple[int, int]]:
    """From the last corner back to the first."""
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
    """One place in two sequences: the same on both sides, changed, or only on one."""

    mark: str
    """`=`, `~`, `-` (only in the first), `+` (only in the second)."""
    a: int | None
    b: int | None


def find_changes(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_loose: Sequence[Hashable],
    b_loose: Sequence[Hashable],
) -> tuple[list[Change], bool]:
    """Every place in order, and whether all of it was looked at.

    `a` and `b` say what is the same; between such places, the loose keys say what is
    still the same thing, only changed.
    """
    alignment = align(a, b)
    same = iter(alignment.pairs)
    found: list[Change] = []
    for gap in alignment.gaps():
        for a_at, b_at in same:
            if a_at >= gap.a_end or b_at >= gap.b_end:
                break  # the pair that ends this gap; told when the gap is done
            found.append(Change("=", a_at, b_at))
        else:
            a_at = b_at = -1
        _tell_gap(gap, a_loose, b_loose, found)
        if a_at >= 0:
            found.append(Change("=", a_at, b_at))
    found.extend(Change("=", a_at, b_at) for a_at, b_at in same)
    return found, alignment.complete


def _tell_gap(
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
