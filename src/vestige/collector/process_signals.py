"""Find and signal the processes of a run that are alive.

A process id may belong to another program by now. The lock of the writer's journal shows that the
process which recorded the id still lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from vestige._runtime import clock, file_locks
from vestige.home import Home
from vestige.record.run import Run

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_POLL_S = 0.05


def find_live_processes(home: Home, run: Run) -> list[int]:
    """Return the ids of the recorded processes of a run that are alive."""
    alive = {writer for writer, _, path in home.journal_files() if file_locks.is_held(path)}
    pids = [
        pid
        for span in run.spans
        if span.type == "process" and span.status is None and span.writer in alive
        if isinstance(pid := span.attributes.get("pid"), int) and pid > 1
    ]
    return [pid for pid in dict.fromkeys(pids) if pid != os.getpid()]


def pause_processes(pids: list[int]) -> None:
    """Stop processes with SIGSTOP. `kill -CONT` resumes them."""
    for pid in pids:
        _send(pid, signal.SIGSTOP)


def stop_processes(pids: list[int], then: Callable[[], None] | None = None) -> None:
    """End processes with SIGTERM, and with SIGKILL after a grace period.

    `then` is called right after SIGTERM: what takes a moment must not delay it.
    """
    for pid in pids:
        _send(pid, signal.SIGTERM)
        _send(pid, signal.SIGCONT)  # a paused process would not see SIGTERM
    if then is not None:
        then()
    deadline = clock.monotonic() + GRACE_S
    while pids and clock.monotonic() < deadline:
        pids = [pid for pid in pids if _is_alive(pid)]
        clock.sleep(_POLL_S)
    for pid in pids:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # It has ended, or it belongs to another user.


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False
