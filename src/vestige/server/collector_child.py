"""The collector beside the server: a process, because ingesting journals can occupy a core.

While another process collects the same home, none is started; the lock is checked again now and
then.

Elsewhere: the child process, vestige/collector_process.py.
"""

from __future__ import annotations

import threading

from vestige.collector.loop import catch_up, hold
from vestige.collector_process import CollectorProcess
from vestige.errors import StoreError
from vestige.home import Home
from vestige.limits import RESTART_BACKOFF_S
from vestige.settings import find_store
from vestige.store.open import open_store


def prepare(home: Home) -> None:
    """Create the home and its store, or migrate the store, where the home is writable."""
    try:
        with hold(home):
            pass
    except StoreError:
        lag = catch_up(home)  # raises if the store itself is unusable
        if lag is None or lag.can_write:
            return
        _check_readable(home, lag.reason)
    except OSError:
        return  # a read-only home: the stored runs are served


def _check_readable(home: Home, reason: str) -> None:
    """Raise StoreError if a store beside which nothing can be written cannot be read either."""
    try:
        open_store(find_store(home), readonly=True).close()
    except StoreError:
        raise StoreError(
            f"{home.root}: not writable ({reason}), so its store cannot be served."
            " Free up space; until then `vestige ui` shows a copy."
        ) from None


class CollectorWatch:
    """A thread that keeps the collector of a home running while the server does."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stop = threading.Event()
        self._process: CollectorProcess | None = None
        self._thread = threading.Thread(target=self._watch, name="vestige-collecting", daemon=True)

    def start(self) -> None:
        self._process = CollectorProcess(self._home, None, quiet=False, exclusive=True)
        self._thread.start()

    def close(self) -> None:
        """Let it ingest the rest and end."""
        self._stop.set()
        if self._process is not None:
            self._thread.join()
            self._process.drain()

    def _watch(self) -> None:
        assert self._process is not None
        while not self._stop.wait(RESTART_BACKOFF_S):
            self._process.check()
