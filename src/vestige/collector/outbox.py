"""The outbox: files that the collector has imported, but `vestige server ship` has not sent yet.

The collector deletes a journal once it is in the store. If `shipped.json` exists, it moves the file
to `outbox/` instead, under the same name. That is one atomic rename, and a ship that reads the file
at that moment continues.

If no ship runs for long, the oldest files above a bound are deleted, so that the disk does not fill
up. `outbox/lost` has the number of deleted bytes, which the next ship reports.
"""

from __future__ import annotations

import os
from pathlib import Path

from vestige.home import Home
from vestige.limits import OUTBOX_MAX

_LOST = "lost"


def is_shipped(home: Home) -> bool:
    """Return whether `vestige server ship` is used with this home."""
    return home.shipped.exists()


def delete_or_outbox(home: Home, path: Path) -> None:
    """Move an imported file to the outbox, or delete it if the home is not shipped."""
    if is_shipped(home):
        try:
            home.outbox.mkdir(mode=0o700, exist_ok=True)
            os.rename(path, home.outbox / path.name)
            return
        except FileNotFoundError:
            return
        except OSError:
            pass  # The disk is full or read-only. The store has the records.
    path.unlink(missing_ok=True)


def bound_outbox(home: Home, total_max: int = OUTBOX_MAX) -> int:
    """Delete the oldest files above the bound, and return the number of deleted bytes."""
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
    """Return the number of bytes that were deleted before they were sent."""
    try:
        text = (home.outbox / _LOST).read_text()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def forget_lost(home: Home) -> None:
    (home.outbox / _LOST).unlink(missing_ok=True)
