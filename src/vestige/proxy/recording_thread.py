"""Observers run in a thread of their own, so that a long body never delays another connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from vestige.limits import PROXY_PENDING_MAX
from vestige.proxy.http1 import Observer

_CLOSE_S = 45.0
_TLS_HANDSHAKE = 0x16


class RecordingThread:
    """Runs the observers of all connections, in the order in which bytes passed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.pending_bytes = 0
        self.is_closed = False
        self._thread = threading.Thread(target=self._run, name="vestige-proxy", daemon=True)
        self._thread.start()

    def put(self, job: Callable[[], None]) -> None:
        if not self.is_closed:
            self._queue.put(job)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    def close(self) -> None:
        self.is_closed = True
        self._queue.put(None)
        self._thread.join(_CLOSE_S)


class Recording:
    """The observer of one connection. It stops at the first bytes that it cannot read."""

    def __init__(
        self,
        thread: RecordingThread,
        observer: Observer,
        report: Callable[[str], None],
        *,
        maybe_tls: bool = False,
    ) -> None:
        self._thread = thread
        self._observer: Observer | None = observer
        self._report = report
        self._maybe_tls = maybe_tls

    def sent(self, data: bytes) -> None:
        if self._maybe_tls:
            self._maybe_tls = False
            if data[0] == _TLS_HANDSHAKE or not data[:1].isupper():
                self._observer = None  # Another protocol: only relayed.
        self._put("sent", data)

    def received(self, data: bytes) -> None:
        self._put("received", data)

    def ended(self, error: Exception | None) -> None:
        if self._observer is not None:
            self._thread.put(lambda: self._call("ended", error))

    def _put(self, method: str, data: bytes) -> None:
        if self._observer is None or self._thread.is_closed:
            return
        thread = self._thread
        if thread.pending_bytes + len(data) > PROXY_PENDING_MAX:
            self._fail("the proxy was too busy")
            return
        thread.pending_bytes += len(data)

        def observe() -> None:
            thread.pending_bytes -= len(data)
            self._call(method, data)

        thread.put(observe)

    def _call(self, method: str, value: object) -> None:
        observer = self._observer
        if observer is None:
            return
        try:
            getattr(observer, method)(value)
        except Exception as error:  # noqa: BLE001  # the bytes are relayed in any case
            self._fail(f"{type(error).__name__}: {error}"[:200])

    def _fail(self, reason: str) -> None:
        observer, self._observer = self._observer, None
        try:
            if observer is not None:
                observer.ended(None)
        except Exception:  # noqa: BLE001  # it has failed already
            pass
        self._report(f"a connection could not be read by the proxy: {reason}")
