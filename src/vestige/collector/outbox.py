"""The outbox: what the collector is done with, but a ship has not yet sent on.

The collector deletes a journal once it is in the store. Where a home is shipped (`shipped.json`
is there) it moves the file into `outbox/` instead, under the same name. That is one rename: a
ship that reads the file at that moment reads on, and a kill leaves it in one place or the other.

A ship that never comes back must not fill the disk: above a bound the oldest files go. What
was lost so is added up in `outbox/lost`, and the next ship says it.
"""

from __future__ import annotations

import os
from pathlib import Path

from vestige.home import Home
from vestige.limits import OUTBOX_MAX

_LOST = "lost"


def is_shipped(home: Home) -> bool:
    """Does somebody send on what is recorded here?"""
    return home.shipped.exists()


def delete_or_outbox(home: Home, path: Path) -> None:
    """The collector has no more use for this file: keep it for the ship, or delete it."""
    if is_shipped(home):
        try:
            home.outbox.mkdir(mode=0o700, exist_ok=True)
            os.rename(path, home.outbox / path.name)
            return
        except FileNotFoundError:
            return
        except OSError:
            pass  # the disk is full, or read-only: the store has it, and that must do
    path.unlink(missing_ok=True)


def bound_outbox(home: Home, total_max: int = OUTBOX_MAX) -> int:
    """Delete the oldest files above the bound; how many bytes."""
    files = []
    try:
        with os.scandir(home.outbox) as found:
            for entry in found:
                if entry.name != _LOST:
                    stat = entry.stat()
                    files.append((stat.st_mtime_ns, stat.st_size, entry.path))
    except OSError:
        return 0
    total = sum(size for _, size, _ in files)
    lost = 0
    for _, size, path in sorted(files):
        if total - lost <= total_max:
            break
        Path(path).unlink(missing_ok=True)
        lost += size
    if lost:
        (home.outbox / _LOST).write_text(str(read_lost(home) + lost))
    return lost


def read_lost(home: Home) -> int:
    """Bytes that went before they were sent."""
    try:
        text = (home.outbox / _LOST).read_text()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def forget_lost(home: Home) -> None:
    (home.outbox / _LOST).unlink(missing_ok=True)
