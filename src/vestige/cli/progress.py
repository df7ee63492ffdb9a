"""A progress bar on stderr, on a terminal only.

with ProgressBar("Importing", total=3) as bar:
    bar.advance(detail="crash.wink")
"""

from __future__ import annotations

import shutil
import sys
from typing import Final, Self

from vestige._runtime import clock
from vestige.query.formatting import single_line, truncate

BAR_COLUMNS: Final = 24
INTERVAL_S: Final = 0.1
"""Least time between two updates."""
_CLEAR: Final = "\r\033[K"


class ProgressBar:
    """The state of work on several items. Without a terminal, nothing is printed."""

    def __init__(self, label: str, total: int | None = None) -> None:
        self._label = label
        self._total = total
        self._done = 0
        self._detail = ""
        self._shown = False
        self._shown_at = 0.0
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def advance(self, count: int = 1, *, detail: str | None = None) -> None:
        """Count finished items; `detail` names the current one."""
        self._done += count
        self.update(self._detail if detail is None else detail)

    def show(self, done: int, total: int) -> None:
        """Show how many of all items are finished."""
        self._done, self._total = done, total
        self.update(self._detail)

    def update(self, detail: str) -> None:
        """Show the state, unless it was shown a moment ago."""
        self._detail = detail
        now = clock.monotonic()
        if self._terminal and now >= self._shown_at + INTERVAL_S:
            self._shown_at, self._shown = now, True
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(_CLEAR + truncate(self.render(), max(10, columns - 1)))
            sys.stderr.flush()

    def render(self) -> str:
        """Return the line: a bar if the total is known, else only the count."""
        detail = f"  {single_line(self._detail, 80)}" if self._detail else ""
        if not self._total:
            count = f" {self._done:,}" if self._done else ""
            return f"{self._label}{count}{detail}"
        done = min(self._done, self._total)
        filled = BAR_COLUMNS * done // self._total
        bar = "█" * filled + "░" * (BAR_COLUMNS - filled)
        return f"{self._label} {bar} {done:,}/{self._total:,}{detail}"

    def clear(self) -> None:
        """Remove the bar, before other text is printed or at the end."""
        if self._shown:
            self._shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
