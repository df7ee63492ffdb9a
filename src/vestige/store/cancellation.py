"""Cancel a read that runs in another thread, because its client has disconnected.

    token = Cancellation()
    with token.active():                      # in the thread that reads
        with on_cancel(connection.interrupt):
            connection.execute(...)           # CancelledReadError elsewhere: token.cancel()

A read registers how it can be stopped (interrupt a connection, kill a process) and calls
`check_cancelled` between steps. Without an active token both are no-ops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class CancelledReadError(Exception):
    """The read was cancelled, because its client has disconnected. Never shown to a user."""


class Cancellation:
    """A flag that any thread may set, and the callbacks that stop what runs now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Stop the read. Callbacks run under the lock, so none runs after it is unregistered."""
        with self._lock:
            self._cancelled = True
            for callback in self._callbacks:
                callback()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the token of the current thread."""
        before = _active.set(self)
        try:
            yield
        finally:
            _active.reset(before)

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            if self._cancelled:
                raise CancelledReadError
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


_active: ContextVar[Cancellation | None] = ContextVar("vestige_cancellation", default=None)


@contextmanager
def on_cancel(callback: Callable[[], object]) -> Iterator[None]:
    """Call this when the current read is cancelled while the block runs."""
    token = _active.get()
    if token is None:
        yield
        return
    with token.calling(callback):
        yield


def check_cancelled() -> None:
    """Raise if the current read was cancelled. Cheap: call it between steps."""
    token = _active.get()
    if token is not None and token.cancelled:
        raise CancelledReadError
