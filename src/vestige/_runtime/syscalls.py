"""The calls of the system that recording lives on, whatever a test puts in their place.

    system.write(fd, line)

Tests replace `os.write`, `os.mkdir` or a whole file system (mock, pyfakefs) while we record them. What we write
meanwhile must reach the disk, and nothing that is the test's. A class, for such tools replace what stands in modules;
and of `posix`, which they leave alone, in case one of them is at work when this is loaded.
"""

from __future__ import annotations

import fcntl as _fcntl
import posix
from stat import S_ISDIR

_STEP = 1024 * 1024


class system:  # noqa: N801  # used as the module is that it stands for
    """As they were."""

    open = posix.open
    read = posix.read
    write = posix.write
    pwrite = posix.pwrite
    lseek = posix.lseek
    close = posix.close
    fsync = posix.fsync
    fstat = posix.fstat
    stat = posix.stat
    lstat = posix.lstat
    dup = posix.dup
    dup2 = posix.dup2
    mkdir = posix.mkdir
    link = posix.link
    rename = posix.rename
    unlink = posix.unlink
    getpid = posix.getpid
    getppid = posix.getppid
    sysconf = posix.sysconf
    flock = _fcntl.flock
    fcntl = _fcntl.fcntl


def read_all(fd: int) -> bytes:
    """What is left to read of an open file."""
    return b"".join(iter(lambda: system.read(fd, _STEP), b""))


def read_file(path: str) -> bytes:
    fd = system.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return read_all(fd)
    finally:
        system.close(fd)


def make_folder(path: str, mode: int = 0o777) -> None:
    """A folder, and those above it, if they are not there: what `Path.mkdir` does."""
    try:
        system.mkdir(path, mode)
    except FileExistsError:
        if not S_ISDIR(system.stat(path).st_mode):
            raise
    except FileNotFoundError:
        above = path.rpartition("/")[0]
        if not above:
            raise
        make_folder(above)
        try:
            # Once only: /proc and the like say that there is no such folder above, although there is.
            system.mkdir(path, mode)
        except FileExistsError:
            if not S_ISDIR(system.stat(path).st_mode):
                raise
