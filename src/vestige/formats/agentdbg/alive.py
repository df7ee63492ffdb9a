"""Does somebody still write to this run?

Ours: the live sink holds the lock of events.jsonl for as long as its process lives, so the lock
tells. AgentDbg's own: it holds nothing and names no process; what is left is how long it has been
silent. It writes an event when a call is over, and a slow call takes minutes (limits.py).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from vestige.clock import SYSTEM
from vestige.limits import FOREIGN_SILENCE_S


def is_held(path: Path) -> bool:
    """Does somebody hold the lock of this file?"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_dead(events: Path, *, ours: bool, now_ns: int | None = None) -> bool:
    """Will nothing more come? `ours`: written by a sink that locks."""
    if is_held(events):
        return False
    if ours:
        return True
    try:
        last_ns = max(os.stat(events).st_mtime_ns, os.stat(events.parent).st_mtime_ns)
    except OSError:
        return True
    now_ns = SYSTEM.now_ns() if now_ns is None else now_ns
    return now_ns - last_ns > FOREIGN_SILENCE_S * 1_000_000_000
