"""Temporary folders that are deleted even if their process is killed.

    folder, remove = create_folder()

The owner locks a file in the folder. Creating a folder also deletes older ones without a lock.
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
_LOCK_AGE_NS = 3600 * 10**9
"""The owner of a younger folder may be about to lock it."""


def create_folder() -> tuple[Path, Callable[[], None]]:
    """Create a folder. Return it and a function that deletes it."""
    # Imported here, because most commands need no temporary folder and start faster without.
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = (folder / _LOCK).open("wb")
    try_lock(lock.fileno())
    for abandoned in _find_abandoned(folder.parent):
        shutil.rmtree(abandoned, ignore_errors=True)

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()

    return folder, remove


def _find_abandoned(parent: Path) -> Iterator[Path]:
    """Yield folders of killed processes, whose locks are free."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            lock = Path(entry.path, _LOCK)
            with suppress(OSError):
                stat = lock.lstat()
                is_old = SYSTEM.now_ns() - stat.st_mtime_ns > _LOCK_AGE_NS
                if is_old and stat.st_uid == os.getuid() and not is_held(lock):
                    yield Path(entry.path)
