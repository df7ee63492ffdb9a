"""The server's log: a line of JSON on stderr for each request, unless that would have to wait.

Whoever started the server may have given it a pipe and stopped reading. A full pipe blocks the next
write, and it is the event loop that writes: all who ask would wait for somebody who does not read.
So a line that finds no room is dropped, and the next one that finds some is told how many were.
"""

from __future__ import annotations

import os
import select

import msgspec

LINE_BYTES_MAX = 4_000
"""A pipe that says it has room has it for this much (PIPE_BUF), so that the write does not wait."""


class Log:
    """Called with what is to be said. Never waits, never raises."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self.dropped = 0
        """Lines that found no room and were not told of yet."""

    def __call__(self, line: dict[str, object]) -> None:
        dropped = self.dropped
        if dropped and not self._write({"dropped_lines": dropped}):
            self.dropped += 1
            return
        # Not to zero: another thread may have dropped one meanwhile.
        self.dropped -= dropped
        if not self._write(line):
            self.dropped += 1

    def _write(self, line: dict[str, object]) -> bool:
        data = msgspec.json.encode(line)
        if len(data) >= LINE_BYTES_MAX:
            data = msgspec.json.encode({"too_long_bytes": len(data)})
        try:
            # Asked, and not made non-blocking: the terminal or pipe is not ours alone.
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return False
            os.write(self._fd, data + b"\n")
        except OSError:  # nobody is there any more
            return False
        return True
