"""File locks: how one process tells that another is alive.

A journal's writer holds the lock of its file for as long as it lives, whatever kills
it; the kernel lets go when the last write has landed. `flock` is the right kind: it
belongs to the open file, so a reader in the same process is told the truth too.
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


def hold(fd: int) -> bool:
    """Take the lock of an open file, if it is free."""
    try:
        system.flock(fd, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Does somebody hold the lock of this file? A file that is gone is held by nobody; one that
    cannot be asked (too many are open) may be: what is not held is taken for finished, and deleted."""
    try:
        fd = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        return not hold(fd)
    finally:
        system.close(fd)


@contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Hold the lock of a file, made if need be; wait for whoever has it."""
    fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        system.flock(fd, LOCK_EX)
        yield
    finally:
        system.close(fd)
