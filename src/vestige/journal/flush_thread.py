"""A thread that works now and then, beside the program.

    keeper = Keeper(journal.check)      # RuntimeError: there can be no more threads
    keeper.stop()

Not one of `threading`: programs count those, wait for them, and put others in their place (gevent, eventlet), which then
fail over one that began before. For the same reason its locks are the plain ones.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, get_native_id
from collections.abc import Callable

from vestige._runtime.background_threads import start_thread
from vestige._runtime.syscalls import system
from vestige.limits import FORK_WAIT_S, FSYNC_INTERVAL_S

FORK_WAIT_STEPS = 200


class FlushThread:
    """Works about once a second, until it is stopped."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ident: int | None = None
        self._native_id = 0
        self._pause, self._life = allocate_lock(), allocate_lock()
        self._pause.acquire()
        self._life.acquire()
        start_thread(self._keep)

    def _keep(self) -> None:
        self._ident, self._native_id = get_ident(), get_native_id()
        try:
            while not self._pause.acquire(timeout=FSYNC_INTERVAL_S):
                self._work()
        finally:
            self._life.release()

    def stop(self) -> None:
        """Returns when it has ended, unless it is itself who asks, or takes too long."""
        if self._pause.locked():
            self._pause.release()
        if get_ident() != self._ident:
            self._life.acquire(timeout=FSYNC_INTERVAL_S)

    def stop_before_fork(self) -> None:
        """Stop, and wait until the system has no such thread any more, for a bounded time.

        Python 3.12 and later warn of a fork in a process with threads, and count those of the system.
        """
        if get_ident() == self._ident:
            return
        self._pause.release()
        if not self._life.acquire(timeout=FORK_WAIT_S):
            return  # It is writing to a slow disk. The program does not wait for that.
        try:
            for _ in range(FORK_WAIT_STEPS):
                system.stat(f"/proc/self/task/{self._native_id}")
                self._pause.acquire(timeout=FORK_WAIT_S / FORK_WAIT_STEPS)
        except OSError:
            pass  # It has ended, or this system has no such folder.
