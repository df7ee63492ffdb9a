"""Start recorder threads inside the recorded program, with all signals blocked.

    start_thread(self._loop)

A signal sent to a process goes to any thread that has not blocked it. A program may block one in
all of its threads, to wait for it with `sigwait`. A recorder thread without that mask would get
the signal instead, and the default action would kill the process. A new thread inherits the mask of
the thread that starts it. So all signals are blocked before the start, and the program's mask is
restored after it. A signal that arrives in between stays pending and is delivered then.

The threads are those of `_thread`: programs count, join and replace the ones of `threading`.
"""

from __future__ import annotations

from _signal import (  # type: ignore[import-not-found]  # `signal` builds enums: 1 ms
    SIG_BLOCK,
    SIG_SETMASK,
    pthread_sigmask,
    valid_signals,
)
from _thread import start_new_thread
from collections.abc import Callable

_ALL = valid_signals()


def start_thread(target: Callable[[], None]) -> None:
    """Start a thread that takes no signals. Raise RuntimeError if none can be started."""
    # Each call of pthread_sigmask may also run a handler of the program, which may raise: the mask
    # is read first, so that it can be restored whatever happens after that.
    before = pthread_sigmask(SIG_BLOCK, ())
    try:
        pthread_sigmask(SIG_BLOCK, _ALL)
        start_new_thread(target, ())
    finally:
        pthread_sigmask(SIG_SETMASK, before)
