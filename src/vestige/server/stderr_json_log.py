"""The server's log: one line of JSON on stderr per request.

The event loop writes the log, so a write must never block. A pipe that is full because its reader
stopped reading would block it. Such a line is dropped, and the next line that fits is preceded by
the number of dropped lines.
"""

from __future__ import annotations

import os
import select

import msgspec

LINE_BYTES_MAX = 4_000
"""A writable pipe has room for this many bytes (PIPE_BUF), so the write does not block."""


class Log:
    """Callable that writes one log line. It never blocks and never raises."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self.dropped = 0
        """Lines dropped since the last report of dropped lines."""

    def __call__(self, line: dict[str, object]) -> None:
        dropped = self.dropped
        if dropped and not self._write({"dropped_lines": dropped}):
            self.dropped += 1
            return
        # Subtract instead of resetting to zero: another thread may have dropped a line meanwhile.
        self.dropped -= dropped
        if not self._write(line):
            self.dropped += 1

    def _write(self, line: dict[str, object]) -> bool:
        data = msgspec.json.encode(line)
        if len(data) >= LINE_BYTES_MAX:
            data = msgspec.json.encode({"too_long_bytes": len(data)})
        try:
            # Poll instead of O_NONBLOCK: the terminal or pipe is shared with other processes.
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return False
            os.write(self._fd, data + b"\n")
        except OSError:  # the reader has closed its end
            return False
        return True
