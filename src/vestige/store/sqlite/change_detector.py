"""Whether a store has changed: a look that takes no lock, and a few microseconds.

    before = pulse(home.store)
    pulse(home.store) == before         # no row has changed in between

The first bytes of SQLite's index of its log (`store.db-shm`) count every commit.

The one hard fact: SQLite's locks are the whole process's, and closing any file that they are on
lets go of them all (https://sqlite.org/howtocorrupt.html, 2.2): another process would then empty
the log under our readers. So that file is opened once, and never closed while the process lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HEADER: Final = 48
"""Bytes: https://sqlite.org/walformat.html, 2.1."""

_open: dict[str, tuple[tuple[int, int], int]] = {}
"""By path: which file it was when it was opened, and its number. A store that is put in another's
place costs one more open file; that is rare."""


def read_change_marker(store: Path) -> bytes:
    """Bytes that differ whenever the store's rows do."""
    try:
        found = os.stat(store)
        state = f"{found.st_ino} {found.st_mtime_ns} {found.st_size} ".encode()
    except OSError:
        return b"none"
    try:
        # Where the path is only a link, SQLite keeps it beside the file itself.
        path = os.path.realpath(store) if os.path.islink(store) else store
        return state + os.pread(_index(f"{path}-shm"), _HEADER, 0)
    except OSError:
        return state  # nobody has it open


def _index(path: str) -> int:
    now = os.stat(path)
    identity = now.st_dev, now.st_ino
    known = _open.get(path)
    if known is None or known[0] != identity:
        # Two threads may both open it: then one more stays open, and no harm is done.
        known = _open[path] = identity, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return known[1]
