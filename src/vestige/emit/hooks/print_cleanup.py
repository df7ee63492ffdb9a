"""Convert printed text for recording: as a screen shows it, and at a bounded rate."""

from __future__ import annotations

import re

from vestige._runtime.clock import Now
from vestige.limits import PRINTS_AT_ONCE, PRINTS_PER_S

# Escape sequences of terminals: colours, cursor movement, links and titles.
_STYLE = re.compile(r"\x1b\[[0-9:;<=>?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_WRITTEN_OVER = re.compile(r"[^\n]*\r(?=[^\n])")


class PrintAllowance:
    """A token bucket: PRINTS_AT_ONCE in a burst, then PRINTS_PER_S."""

    def __init__(self, now_ns: Now) -> None:
        self._now_ns = now_ns
        self._left = float(PRINTS_AT_ONCE)
        self._at_ns = now_ns()
        self._left_out = 0
        self.is_spent = False

    def take(self) -> bool:
        """Return whether a print may be recorded, and count it."""
        self._refill()
        if self.is_spent:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def count_skipped(self, count: int = 1) -> None:
        """Count prints that were skipped without looking at their text."""
        self._left_out += count
        self._refill()

    def _refill(self) -> None:
        now_ns = self._now_ns()
        more = (now_ns - self._at_ns) * PRINTS_PER_S / 1e9
        self._left, self._at_ns = min(self._left + more, PRINTS_AT_ONCE), now_ns
        self.is_spent = self._left < 1

    def pop_left_out(self) -> int:
        left_out, self._left_out = self._left_out, 0
        return left_out


def to_plain_text(text: str) -> str:
    """Return the text as a screen shows it, without colours."""
    text = _STYLE.sub("", text).replace("\r\n", "\n")
    return _WRITTEN_OVER.sub("", text).strip("\n")
