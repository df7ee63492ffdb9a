"""Detect whether a store has changed, without a lock and in a few microseconds.

    before = read_change_marker(home.store)
    read_change_marker(home.store) == before         # True: no row has changed in between

The first bytes of SQLite's index of its log (`store.db-shm`) count every commit.

The one hard fact: POSIX locks belong to a process, and closing any descriptor of a file
releases all of them (https://sqlite.org/howtocorrupt.html, 2.2). Another process could then
empty the log under our readers. So that file is opened once, and stays open until the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HEADER: Final = 48
"""Bytes: https://sqlite.org/walformat.html, 2.1."""

_open: dict[str, tuple[tuple[int, int], int]] = {}
"""The identity and descriptor of each open index, by path. A replaced store leaks one descriptor;
that is rare."""


def read_change_marker(store: Path) -> bytes:
    """Return bytes that change whenever the rows of the store do."""
    try:
        stat = os.stat(store)
        state = f"{stat.st_ino} {stat.st_mtime_ns} {stat.st_size} ".encode()
    except OSError:
        return b"none"
    try:
        # SQLite resolves links, and puts the index beside the file itself.
        path = os.path.realpath(store) if os.path.islink(store) else store
        return state + os.pread(_open_index(f"{path}-shm"), _HEADER, 0)
    except OSError:
        return state  # no process has the store open


def _open_index(path: str) -> int:
    stat = os.stat(path)
    identity = stat.st_dev, stat.st_ino
    known = _open.get(path)
    if known is None or known[0] != identity:
        # Two threads may both open it. Then one descriptor more stays open, which is harmless.
        known = _open[path] = identity, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return known[1]
