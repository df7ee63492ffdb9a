"""Read the journal: the complete lines written since an offset.

The journal is the queue between two processes, and either may die at any byte.
So the reader trusts one thing only: a newline. Bytes after the last newline are
a line still being written; they stay where they are, and the offset returned
does not pass them.

    chunk, offset = read_lines(path, 0)
    chunk, offset = read_lines(path, offset)      # only what is new

Elsewhere: lines become records in record/codec.py; the collector
handles a line that does not parse (collector/journal_ingest.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.limits import BATCH_BYTES, LINE_MAX

if TYPE_CHECKING:
    from pathlib import Path


def read_lines(path: Path, offset: int, bytes_max: int = BATCH_BYTES) -> tuple[bytes, int]:
    """Read the complete lines after `offset`, and return them with the offset after them.

    Newlines are included. `bytes_max` is approximate. A file that has shrunk or is missing reads as
    empty. A line longer than any valid one is skipped once its newline is there: only its first
    bytes are returned, which do not parse.
    """
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(bytes_max)
            end = data.rfind(b"\n") + 1
            if end or len(data) < bytes_max:
                return data[:end], offset + end
            return _skip_long_line(file, data, offset)
    except FileNotFoundError:
        return b"", offset


def _skip_long_line(file: object, data: bytes, offset: int) -> tuple[bytes, int]:
    position = offset + len(data)
    head = data[: LINE_MAX + 1]
    while True:
        more: bytes = file.read(BATCH_BYTES)  # type: ignore[attr-defined]  # a binary file
        newline = more.find(b"\n")
        if newline >= 0:
            return head + b"\n", position + newline + 1
        if not more:
            return b"", offset
        position += len(more)
