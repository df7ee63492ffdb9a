"""Lines that could not be written, until writing works again.

    backlog.add(line, "No space left on device")
    backlog.write_out(write)             # the oldest first, until one fails

A disk that is full for a moment then costs nothing. The backlog is bounded: above the bound the
oldest lines are dropped, and counted by reason and run, so that a loss is reported on the run that
lost its records.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from vestige.limits import BACKLOG_MAX, BACKLOG_RUNS_MAX

_RUN_ID = re.compile(rb'"run_id":"([^"\\]{1,64})"')


class Loss(NamedTuple):
    """The reason of a loss. `run_id` is empty if it is not known."""

    reason: str
    run_id: str = ""


class Backlog:
    """The waiting lines of one journal. The caller holds the journal's lock."""

    def __init__(self, bytes_max: int = BACKLOG_MAX) -> None:
        self._bytes_max = bytes_max
        self._lines: deque[tuple[bytes, str]] = deque()
        self._bytes = 0
        self.waiting = 0
        """Records in the waiting lines."""
        self.dropped = 0
        """Records that were dropped."""
        self.losses: Counter[Loss] = Counter()

    def add(self, line: bytes, reason: str) -> None:
        self._lines.append((line, reason))
        self._bytes += len(line)
        self.waiting += line.count(b"\n")
        self.trim(self._bytes_max)

    def trim(self, bytes_max: int) -> None:
        """Drop the oldest lines above a bound."""
        while self._bytes > bytes_max:
            line, reason = self._take()
            self.dropped += line.count(b"\n")
            for record in line.splitlines():
                self.losses[self._loss(f"records dropped: {reason}", record)] += 1

    def _take(self) -> tuple[bytes, str]:
        line, reason = self._lines.popleft()
        self._bytes -= len(line)
        self.waiting -= line.count(b"\n")
        return line, reason

    def _loss(self, reason: str, record: bytes) -> Loss:
        found = _RUN_ID.search(record)
        loss = Loss(reason, found[1].decode(errors="replace") if found else "")
        is_new = loss not in self.losses and len(self.losses) >= BACKLOG_RUNS_MAX
        return Loss(reason) if is_new else loss

    def write_out(self, write: Callable[[bytes], OSError | None]) -> OSError | None:
        """Write the waiting lines, the oldest first. Return the error of the first that fails."""
        while self._lines:
            error = write(self._lines[0][0])
            if error is not None:
                return error
            self._take()
        return None
