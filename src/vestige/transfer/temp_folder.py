"""A temporary folder that goes with whoever made it, or with the next one: even after `kill -9`.

    folder, remove = make_folder()

Its maker holds the lock of a file in it. A later one removes those that nobody holds any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from vestige._runtime.clock import SYSTEM
from vestige._runtime.file_locks import is_held, try_lock

_PREFIX = "vestige-"
_LOCK = "in-use"
_LEFT_NS = 3600 * 10**9
"""A folder that is younger may be one whose lock is about to be taken."""


def make_folder() -> tuple[Path, Callable[[], None]]:
    """A new folder, and how to be rid of it. OSError: none can be made."""
    # Here: most commands ask a home, and would only start more slowly.
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = (folder / _LOCK).open("wb")
    try_lock(lock.fileno())
    for left in _left_behind(folder.parent):
        shutil.rmtree(left, ignore_errors=True)

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()

    return folder, remove


def _left_behind(parent: Path) -> Iterator[Path]:
    """Ours, of processes that were killed: nobody holds their locks any more."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            lock = Path(entry.path, _LOCK)
            with suppress(OSError):
                told = lock.lstat()
                old = SYSTEM.now_ns() - told.st_mtime_ns > _LEFT_NS
                if old and told.st_uid == os.getuid() and not is_held(lock):
                    yield Path(entry.path)
