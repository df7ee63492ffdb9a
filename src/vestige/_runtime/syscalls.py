"""System calls that tests cannot replace.

    system.write(fd, line)

Tests replace `os.write`, `os.mkdir` or a whole file system (mock, pyfakefs) while we record them.
Our records must still reach the disk, and the test's fakes must not see them. The functions are in
a class, because such tools replace the attributes of modules. They come from `posix`, which the
tools leave alone, in case one is active when this module is loaded.
"""

from __future__ import annotations

import fcntl as _fcntl
import posix
from stat import S_ISDIR

_CHUNK_BYTES = 1024 * 1024


class system:  # noqa: N801  # used like the module `os`
    """The original functions of `posix` and `fcntl`."""

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
    """Read an open file from its position to the end."""
    return b"".join(iter(lambda: system.read(fd, _CHUNK_BYTES), b""))


def read_file(path: str) -> bytes:
    fd = system.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return read_all(fd)
    finally:
        system.close(fd)


def make_folder(path: str, mode: int = 0o777) -> None:
    """Create a folder and its parents if they are missing, as `Path.mkdir` does."""
    try:
        system.mkdir(path, mode)
    except FileExistsError:
        if not S_ISDIR(system.stat(path).st_mode):
            raise
    except FileNotFoundError:
        parent = path.rpartition("/")[0]
        if not parent:
            raise
        make_folder(parent)
        try:
            # One retry only: /proc reports a missing parent although there is one.
            system.mkdir(path, mode)
        except FileExistsError:
            if not S_ISDIR(system.stat(path).st_mode):
                raise
