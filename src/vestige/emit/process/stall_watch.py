"""When a process should say where it stands: it was asked to, or it has been silent for long.

    watch.due(journal.written_bytes)        # about once a second: Due("nothing was recorded for 30 s"), or None
    watch.spoke(journal.written_bytes)      # what it says about itself is no sign of life

A silence is told when it has lasted twice as long as the longest that was told before, so a service that mostly waits
says little. Who asks (`vestige stacks`) leaves a file with its question; it goes when it is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vestige._runtime.clock import Clock

if TYPE_CHECKING:
    from pathlib import Path

_ASK_MAX = 200
"""Bytes of a question: a run's id, and what the answer is to be known by."""


class StackRequest(msgspec.Struct, frozen=True, gc=False):
    why: str
    run_id: str = ""
    """The run that is asked about; empty: all that are open."""
    asked: str = ""
    """What the answer is known by."""


class StallWatch:
    """One process's. `silence_s`: from when on a silence is told; 0: never."""

    def __init__(self, clock: Clock, silence_s: float, ask_file: Path) -> None:
        self._monotonic_ns = clock.monotonic_ns
        self._worth_ns = int(silence_s * 1e9)
        self._ask_file = ask_file
        self._mark = -1
        self._since_ns = 0

    def due(self, mark: int) -> StackRequest | None:
        """`mark`: changes with every record."""
        return self._asked() or self._silent(mark)

    def spoke(self, mark: int) -> None:
        self._mark = mark

    def _silent(self, mark: int) -> StackRequest | None:
        now_ns = self._monotonic_ns()
        if mark != self._mark:
            self._mark, self._since_ns = mark, now_ns
        lasted_ns = now_ns - self._since_ns
        if not 0 < self._worth_ns <= lasted_ns:
            return None
        self._worth_ns *= 2
        return StackRequest(f"nothing was recorded for {lasted_ns // 10**9} s")

    def _asked(self) -> StackRequest | None:
        try:
            with open(self._ask_file, "rb") as file:
                question = file.read(_ASK_MAX).decode(errors="replace").split()
            self._ask_file.unlink()
        except OSError:
            return None  # as nearly always: nobody asks
        run_id, asked = (*question, "", "")[:2]
        return StackRequest("asked where it stands", run_id, asked)
