"""File descriptors that stay open for long inside the recorded program.

    file = OwnFile(os.open(path, OPEN_FLAGS, 0o600))
    file.append(line)            # LostError: the descriptor is no longer ours
    file.close()                 # closes it only while it is ours

A program that becomes a daemon closes every descriptor it can name, ours included. The kernel then
gives the same number to the next file that the program opens, so a number alone proves nothing.

Each file is marked: its read position is set to a number that no other file has. On Linux `pwrite`
appends to a file opened with O_APPEND and leaves the position alone, so one `lseek` (a sixth of
an `fstat`) distinguishes our file from all others, also from one with a reused inode number.
Where a position cannot be set (other systems, pipes), device and inode are compared.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC
from os import SEEK_CUR, SEEK_SET

from vestige._runtime.syscalls import system

OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
NUMBER_MAX = 4096
"""Descriptors are numbered below this: a higher number makes the kernel's table larger."""
NUMBER_MARGIN = 64
"""The distance of the first number below the highest possible one."""
UNMARKED = -1
"""No file has this position, so an unmarked file always takes the slower comparison."""

_POSITION_MIN = 0x56_4553_5449
_positions = itertools.count(_POSITION_MIN)
_HAS_MARKS = sys.platform == "linux"


class LostError(OSError):
    """The descriptor was closed by the program, and may be the program's own file by now."""

    def __init__(self) -> None:
        super().__init__(errno.EBADF, "closed by the program")


class OwnFile:
    """An open file of ours. `fd` and `mark` are public for the journal's hot path."""

    __slots__ = ("_position", "_stat", "fd", "mark")

    def __init__(self, fd: int = -1, *, marked: bool = True) -> None:
        """Take over an open descriptor, which moves to a high number. -1: there is none yet.

        `marked=False` is for files that something else writes to, which moves the position.
        """
        self.fd = -1
        self.mark = UNMARKED
        self._position = next(_positions) if marked else UNMARKED
        self._stat: os.stat_result | None = None
        if fd >= 0:
            try:
                self.point_to(fd)
            finally:
                system.close(fd)

    def is_ours(self) -> bool:
        """Return whether the descriptor still is the file that was opened."""
        try:
            if self.mark != UNMARKED:
                return system.lseek(self.fd, 0, SEEK_CUR) == self.mark
            stat = self._stat
            return stat is not None and os.path.samestat(system.fstat(self.fd), stat)
        except OSError:
            return False

    def append(self, data: bytes) -> int:
        """Append bytes and return how many were written. Raise LostError if it is not ours."""
        if not self.is_ours():
            raise LostError
        if self.mark != UNMARKED:
            return system.pwrite(self.fd, data, 0)
        return system.write(self.fd, data)

    def point_to(self, fd: int) -> None:
        """Continue in another open file under the same number. The caller closes `fd`."""
        ours = self.is_ours()
        mark = _set_mark(fd, self._position)
        if ours:
            system.dup2(fd, self.fd, inheritable=False)
        else:
            self.fd = duplicate_high(fd)
        self.mark, self._stat = mark, system.fstat(fd)

    def close(self) -> None:
        """Close the descriptor if it is ours; otherwise forget it."""
        if self.is_ours():
            with suppress(OSError):
                system.close(self.fd)
        self.fd = -1


def _set_mark(fd: int, position: int) -> int:
    """Set the position of a file opened to append. Return it, or UNMARKED."""
    try:
        if _HAS_MARKS and position != UNMARKED and system.lseek(fd, position, SEEK_SET) == position:
            return position
    except OSError:
        pass  # A pipe, or a file system with short files.
    return UNMARKED


def duplicate_high(fd: int) -> int:
    """Duplicate a descriptor to a number that the program gets only when all others are taken."""
    highest = min(system.sysconf("SC_OPEN_MAX"), NUMBER_MAX)
    for least in (highest - min(NUMBER_MARGIN, highest // 4), 3):
        with suppress(OSError):
            found: int = system.fcntl(fd, F_DUPFD_CLOEXEC, least)
            if found >= least:  # A fake file system may answer with any number.
                return found
    return system.dup(fd)
