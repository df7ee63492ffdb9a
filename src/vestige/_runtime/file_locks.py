"""File locks, which show whether the process that writes a file is alive.

A journal's writer holds the lock of its file as long as it lives, whatever kills it. The kernel
releases the lock after the last write. `flock` belongs to the open file, so a reader in the same
process gets the right answer too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB
from typing import TYPE_CHECKING

from vestige._runtime.syscalls import system

if TYPE_CHECKING:
    from pathlib import Path


def try_lock(fd: int) -> bool:
    """Lock an open file without waiting. Return False if it is already locked."""
    try:
        system.flock(fd, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock of this file. A missing file is not held.

    A file that cannot be opened (too many are open) counts as held: callers treat a free file as
    finished, and may delete it.
    """
    try:
        fd = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        return not try_lock(fd)
    finally:
        system.close(fd)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Create the file if it is missing, and wait for the lock."""
    fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        system.flock(fd, LOCK_EX)
        yield
    finally:
        system.close(fd)
