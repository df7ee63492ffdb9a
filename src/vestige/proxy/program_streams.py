"""The standard streams of a command that is not Python, so that what it prints can be recorded.

A pipe behind the program is replaced by one that the process of the proxy relays. A regular file is
read while the program writes it. A terminal is not touched: the program draws on it, asks for its
size, and controls its jobs.

    vestige run -- node agent.js | tee log.txt        relayed
    vestige run -- node agent.js > log.txt            read
"""

from __future__ import annotations

import os
import stat
import sys
from typing import NamedTuple

_NAMES = {1: "stdout", 2: "stderr"}


class Stream(NamedTuple):
    """A stream that the proxy's process reads."""

    name: str
    source: int
    target: int
    """The descriptor to which the bytes are written. -1: the program writes its file itself."""


class ProgramStreams:
    """The standard streams of a command, opened before the proxy and the command start."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.for_program: dict[int, int] = {}
        """The ends of our pipes that the command gets instead of its streams."""
        places: dict[tuple[int, int], int] = {}
        for fd in (1, 2):
            try:
                status = os.fstat(fd)
                place = (status.st_dev, status.st_ino)
                if place not in places:
                    places[place] = fd
                    self._open(fd, status.st_mode)
                elif places[place] in self.for_program:
                    self.for_program[fd] = self.for_program[places[place]]  # Keeps their order.
            except OSError:
                continue  # A closed stream.

    def _open(self, fd: int, mode: int) -> None:
        if stat.S_ISFIFO(mode):
            source, end = os.pipe()
            self.streams.append(Stream(_NAMES[fd], source, os.dup(fd)))
            self.for_program[fd] = end
        elif stat.S_ISREG(mode) and sys.platform == "linux":  # Elsewhere, the position is shared.
            at = os.fstat(fd).st_size if _appends(fd) else os.lseek(fd, 0, os.SEEK_CUR)
            source = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(source, at, os.SEEK_SET)
            self.streams.append(Stream(_NAMES[fd], source, -1))

    @property
    def arguments(self) -> list[str]:
        """The streams as arguments of the proxy's process."""
        return [":".join(str(part) for part in stream) for stream in self.streams]

    @property
    def inherited(self) -> list[int]:
        """The files that the proxy's process needs."""
        return [fd for stream in self.streams for fd in stream[1:] if fd >= 0]

    def close_for_proxy(self) -> None:
        """Close what only the proxy's process needs, once it has started."""
        for fd in self.inherited:
            os.close(fd)

    def close_for_program(self) -> None:
        """Close the ends of the pipes, so that they end with the program."""
        for fd in set(self.for_program.values()):
            os.close(fd)
        self.for_program = {}


def _appends(fd: int) -> bool:
    import fcntl

    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


def parse_stream(text: str) -> Stream:
    name, source, target = text.split(":")
    return Stream(name, int(source), int(target))
