"""Decide when a process records its stacks: on request, or after a long silence.

    watch.due(journal.written_bytes)           # about once a second: a StackRequest, or None
    watch.ignore_until(journal.written_bytes)  # the process's own reports are not activity

Each report doubles the silence that causes the next one, so a service that mostly waits reports
rarely. `vestige stacks` requests stacks with a file, which is deleted when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.clock import Clock
from vestige._runtime.msgspec_or_fallback import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_REQUEST_MAX = 200
"""Bytes of a request: the id of a run, and the id of the request."""


class StackRequest(msgspec.Struct, frozen=True, gc=False):
    reason: str
    run_id: str = ""
    """Empty for all open runs."""
    request_id: str = ""
    """Copied to the record, so that the requester finds it."""


class StallWatch:
    """The watch of one process. The first silence of `silence_s` is reported; 0 disables that."""

    def __init__(self, clock: Clock, silence_s: float, ask_file: Path) -> None:
        self._monotonic_ns = clock.monotonic_ns
        self._threshold_ns = int(silence_s * 1e9)
        self._ask_file = ask_file
        self._mark = -1
        self._since_ns = 0

    def due(self, mark: int) -> StackRequest | None:
        """Return a request if one is due. `mark` is a number that changes with every record."""
        return self._read_request() or self._check_silence(mark)

    def ignore_until(self, mark: int) -> None:
        """Do not count the records up to `mark` as activity."""
        self._mark = mark

    def _check_silence(self, mark: int) -> StackRequest | None:
        now_ns = self._monotonic_ns()
        if mark != self._mark:
            self._mark, self._since_ns = mark, now_ns
        silence_ns = now_ns - self._since_ns
        if not 0 < self._threshold_ns <= silence_ns:
            return None
        self._threshold_ns *= 2
        return StackRequest(f"nothing was recorded for {silence_ns // 10**9} s")

    def _read_request(self) -> StackRequest | None:
        try:
            with open(self._ask_file, "rb") as file:
                words = file.read(_REQUEST_MAX).decode(errors="replace").split()
            self._ask_file.unlink()
        except OSError:
            return None  # No request, the common case.
        run_id, request_id = (*words, "", "")[:2]
        return StackRequest("stacks requested", run_id, request_id)
