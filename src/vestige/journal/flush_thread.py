"""A thread inside the program that calls a function about once a second.

    thread = FlushThread(journal.check)      # RuntimeError: no more threads can be started
    thread.stop()

The thread and its locks are those of `_thread`. Programs count and join the threads of `threading`,
and replace the class (gevent, eventlet), which then fails on a thread that was started before.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, get_native_id
from collections.abc import Callable

from vestige._runtime.background_threads import start_thread
from vestige._runtime.syscalls import system
from vestige.limits import FORK_WAIT_S, FSYNC_INTERVAL_S

FORK_WAIT_STEPS = 200


class FlushThread:
    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ident: int | None = None
        self._native_id = 0
        self._stop_lock, self._alive_lock = allocate_lock(), allocate_lock()
        self._stop_lock.acquire()
        self._alive_lock.acquire()
        start_thread(self._loop)

    def _loop(self) -> None:
        self._ident, self._native_id = get_ident(), get_native_id()
        try:
            while not self._stop_lock.acquire(timeout=FSYNC_INTERVAL_S):
                self._work()
        finally:
            self._alive_lock.release()

    def stop(self) -> None:
        """Stop, and wait for the end for a bounded time, unless the thread calls this itself."""
        if self._stop_lock.locked():
            self._stop_lock.release()
        if get_ident() != self._ident:
            self._alive_lock.acquire(timeout=FSYNC_INTERVAL_S)

    def stop_before_fork(self) -> None:
        """Stop, and wait for a bounded time until the kernel has removed the thread.

        Python 3.12 and later warn about a fork in a process whose kernel threads are several.
        """
        if get_ident() == self._ident:
            return
        self._stop_lock.release()
        if not self._alive_lock.acquire(timeout=FORK_WAIT_S):
            return  # It is writing to a slow disk, and the program must not wait for that.
        try:
            for _ in range(FORK_WAIT_STEPS):
                system.stat(f"/proc/self/task/{self._native_id}")
                self._stop_lock.acquire(timeout=FORK_WAIT_S / FORK_WAIT_STEPS)
        except OSError:
            pass  # The thread has ended, or this system has no /proc.
