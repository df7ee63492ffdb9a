"""A background thread that stores findings, so that checks run once per run.

Storing may have to wait for the collector's write lock, and a reader's thread must not wait. So
one thread writes from a bounded queue. Findings that do not fit are computed again when needed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from vestige.errors import StoreError
from vestige.home import Home
from vestige.limits import FINDINGS_WAITING_MAX
from vestige.record.run import RunInfo
from vestige.settings import find_store
from vestige.store.open import open_store
from vestige.store.protocol import CheckResult


class FindingsWriter:
    """Queue and thread for findings. The thread starts with the first ones."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._queue: queue.Queue[tuple[RunInfo, Sequence[CheckResult]] | None]
        self._queue = queue.Queue(FINDINGS_WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def store_later(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="vestige-findings", daemon=True
                )
                self._thread.start()
        try:
            self._queue.put_nowait((run, results))
        except queue.Full:
            pass  # computed again when needed

    def close(self) -> None:
        """Store the queued findings and end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                with open_store(find_store(self._home)) as store:
                    store.store_findings(*item)
            except (StoreError, OSError):
                continue  # a read-only or busy home
