"""Run `vestige` in a real terminal of a chosen size."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence


def run_in_terminal(
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    columns: int = 80,
    lines: int = 1000,
) -> str:
    """Return a command's output, as a terminal receives it. `NO_COLOR` is unset by default."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    unset = ("NO_COLOR", "COLUMNS", "LINES", "PAGER", "LESS")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    child = subprocess.Popen(
        [sys.executable, "-m", "vestige", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm", **(env or {})},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux reports that the other end is closed.
            break
        if not part:
            break
        parts.append(part)
    child.wait(120)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")
