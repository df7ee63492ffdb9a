"""Check whether a process still writes to this run.

A process of Vestige holds the lock of events.jsonl while it lives. AgentDbg itself holds no lock
and names no process, so only the time since its last event can be used. It writes an event when a
call is over, and a slow call takes minutes (limits.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from vestige._runtime.clock import SYSTEM
from vestige._runtime.file_locks import is_held
from vestige.limits import FOREIGN_SILENCE_S


def is_dead(events: Path, *, ours: bool, last_event_ns: int | None = None) -> bool:
    """Will nothing more come? `ours`: written by a sink that locks.

    `last_event_ns`: when the last event says that it was written; a copy is younger than that.
    """
    if is_held(events):
        return False
    if ours:
        return True
    try:
        last_ns = os.stat(events).st_mtime_ns
    except OSError:
        return _is_old(events.parent)
    if last_event_ns is not None:
        last_ns = min(last_ns, last_event_ns)
    return _is_silent(last_ns)


def _is_old(run: Path) -> bool:
    """Return whether a run without events was created so long ago that it is dead."""
    try:
        return _is_silent(os.stat(run).st_mtime_ns)
    except OSError:
        return True


def _is_silent(since_ns: int) -> bool:
    return SYSTEM.now_ns() - since_ns > FOREIGN_SILENCE_S * 1_000_000_000
