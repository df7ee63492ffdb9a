"""Read the lines of a file in bounded memory.

for line in iter_lines(file):
    line.data           # without the line end; empty if the line is too long
    line.is_too_long    # it was skipped
    line.is_complete    # False: the last line has no end, so its writer may have died
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from vestige.limits import EVENT_LINE_MAX, MIB

BOM: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line, and where it is in its file."""

    number: int
    """1 for the first line."""
    offset: int
    size: int
    """Bytes in the file, with the line end."""
    data: bytes
    is_complete: bool
    is_too_long: bool


def iter_lines(file: BinaryIO, length_max: int = EVENT_LINE_MAX) -> Iterator[Line]:
    """Yield every line. A line over the limit has no data."""
    number = offset = 0
    while data := file.readline(length_max + 1):
        number += 1
        size, is_complete = len(data), data.endswith(b"\n")
        is_too_long = size > length_max and not is_complete
        if is_too_long:
            skipped, is_complete = _skip_line(file)
            size += skipped
            data = b""
        elif number == 1:
            data = data.removeprefix(BOM)
        yield Line(number, offset, size, data.strip(b" \t\r\n"), is_complete, is_too_long)
        offset += size


def _skip_line(file: BinaryIO) -> tuple[int, bool]:
    """Read to the end of a line. Return the number of bytes, and whether the line ends."""
    size = 0
    while part := file.readline(MIB):
        size += len(part)
        if part.endswith(b"\n"):
            return size, True
    return size, False
