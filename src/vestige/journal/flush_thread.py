"""A thread that works now and then, beside the program.

    keeper = Keeper(journal.check)      # RuntimeError: there can be no more threads
    keeper.stop()

Not one of `threading`: programs count those, wait for them, and put others in their place (gevent, eventlet), which then
fail over one that began before. For the same reason its locks are the plain ones.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable

from vestige.limits import FSYNC_INTERVAL_S


class FlushThread:
    """Works about once a second, until it is stopped."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ident: int | None = None
        self._pause, self._life = allocate_lock(), allocate_lock()
        self._pause.acquire()
        self._life.acquire()
        start_new_thread(self._keep, ())

    def _keep(self) -> None:
        self._ident = get_ident()
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
