"""Lines in the order of their times, without holding all of them.

    order = TimeOrder(log_time)
    for line in order.sorted(read_lines): ...     # read_lines() gives the lines, twice if need be

Lines that are in order, as nearly all are, are read once to see that and then handed out as they
come. Others are sorted in stretches that fit into memory, and merged from a temporary file. Lines
of the same time keep their order; a line without a time stays after its predecessor.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import IO, Final

import msgspec

from vestige.formats.wink.log_records import to_ns
from vestige.limits import MIB

STRETCH_BYTES: Final = 8 * MIB
STRETCH_LINES: Final = 50_000
"""The bytes and lines that are sorted in memory at a time."""
_HELD_MAX: Final = 32 * MIB
"""The part of the temporary file that stays in memory; more goes to the disk."""
_HEAD: Final = struct.Struct("<qL")

TimeOf = Callable[[str], int | None]
Timed = tuple[int, str]


class _LogTime(msgspec.Struct):
    timestamp: str


class _SnapshotTime(msgspec.Struct):
    created_at: str


_log_decoder = msgspec.json.Decoder(_LogTime)
_snapshot_decoder = msgspec.json.Decoder(_SnapshotTime)


def log_time(line: str) -> int | None:
    """Return the time of a log entry; None if it has none."""
    try:
        return to_ns(_log_decoder.decode(line).timestamp)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def snapshot_time(line: str) -> int | None:
    """Return the time of a snapshot; None if it has none."""
    try:
        return to_ns(_snapshot_decoder.decode(line).created_at)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


class TimeOrder:
    """The order of one list of lines; whether it is sorted is found out once."""

    def __init__(self, time_of: TimeOf) -> None:
        self._time_of = time_of
        self._in_order: bool | None = None

    def sorted(
        self, read: Callable[[], Iterator[str]], look: Callable[[], Iterator[str]] | None = None
    ) -> Iterator[str]:
        """Yield the lines that `read` gives, by their times. `look` gives them for a first look."""
        if self._in_order is None:
            self._in_order = is_sorted(self._timed((look or read)()))
        if self._in_order:
            yield from read()
        else:
            yield from sort_by_time(self._timed(read()))

    def _timed(self, lines: Iterable[str]) -> Iterator[Timed]:
        last = 0
        for line in lines:
            time_ns = self._time_of(line)
            last = last if time_ns is None else time_ns
            yield last, line


def is_sorted(timed: Iterable[tuple[int, object]]) -> bool:
    last = 0
    for time_ns, _ in timed:
        if time_ns < last:
            return False
        last = time_ns
    return True


def sort_by_time(timed: Iterable[Timed]) -> Iterator[str]:
    """Yield lines by their times, those of the same time as they come; memory stays bounded."""
    lines: list[Timed] = []
    size = 0
    stretches: list[tuple[int, int]] = []
    with tempfile.SpooledTemporaryFile(max_size=_HELD_MAX) as file:
        for each in timed:
            lines.append(each)
            size += len(each[1])
            if size >= STRETCH_BYTES or len(lines) >= STRETCH_LINES:
                stretches.append(_write(file, lines))
                lines, size = [], 0
        if not stretches:
            lines.sort(key=itemgetter(0))
            yield from (line for _, line in lines)
            return
        stretches.append(_write(file, lines))
        places = [_places(file, *stretch) for stretch in stretches]
        for _, at, length in heapq.merge(*places, key=itemgetter(0)):
            file.seek(at)
            yield file.read(length).decode(errors="surrogatepass")


def _write(file: IO[bytes], lines: list[Timed]) -> tuple[int, int]:
    """Write a stretch, sorted; return where it begins and ends."""
    lines.sort(key=itemgetter(0))
    begin = file.seek(0, 2)
    for time_ns, line in lines:
        raw = line.encode(errors="surrogatepass")
        file.write(_HEAD.pack(time_ns, len(raw)) + raw)
    return begin, file.tell()


def _places(file: IO[bytes], at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the time, place and length of each line of a stretch."""
    while at < end:
        file.seek(at)
        time_ns, length = _HEAD.unpack(file.read(_HEAD.size))
        at += _HEAD.size
        yield time_ns, at, length
        at += length
