"""What checks found, kept in the store behind the answer's back.

A check's result is kept so that it is computed once. Keeping it means writing, and a writer
may have to wait for the collector; a reader's thread must not. So one thread writes, from a
queue with a bound; what does not fit is computed again by the next who asks.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Sequence

from vestige.errors import StoreError
from vestige.home import Home
from vestige.limits import FINDINGS_WAITING_MAX
from vestige.record.run import RunInfo
from vestige.store.protocol import CheckResult
from vestige.store.sqlite.sqlite_store import SqliteStore


class FindingsWriter:
    """One thread that keeps findings; started with the first."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._queue: queue.Queue[tuple[RunInfo, Sequence[CheckResult]] | None]
        self._queue = queue.Queue(FINDINGS_WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="vestige-keeper", daemon=True
                )
                self._thread.start()
        try:
            self._queue.put_nowait((run, results))
        except queue.Full:
            pass  # computed again by the next who asks

    def close(self) -> None:
        """Keep what waits, and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                with SqliteStore.open(self._home.store) as store:
                    store.store_findings(*item)
            except (StoreError, sqlite3.Error, OSError):
                continue  # a home that we may only read, or a busy one
