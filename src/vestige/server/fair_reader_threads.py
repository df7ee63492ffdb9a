"""A pool of reader threads, shared fairly between keys.

    readers = Readers(8)
    job = readers.submit("key_1", work, heavy=True)     # may raise KeyBusyError
    job.future.result()
    job.cancel()                                        # the client has disconnected

Each key has its own queue, and the queues take turns. One key occupies at most half of the
threads. Heavy reads (user-supplied SQL and searches) of all keys together occupy at most half, so
a thread is soon free for another key's ordinary read. Heavy reads also have a budget per key, in
seconds of thread time, which refills over time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from vestige._runtime import clock
from vestige.limits import (
    HTTP_HEAVY_BUDGET_S,
    HTTP_HEAVY_REFILL,
    HTTP_KEY_WAITING_MAX,
    HTTP_KEYS_REMEMBERED,
    HTTP_WAITING_MAX,
)
from vestige.store.cancellation import Cancellation, CancelledReadError


class BusyError(Exception):
    """Too many reads are waiting (503)."""


class KeyBusyError(Exception):
    """This key has too many reads waiting, or has used up its budget (429)."""

    def __init__(self, message: str, wait_s: float = 1.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Job:
    """A read that is waiting or running."""

    def __init__(self, readers: Readers, key: str, work: Callable[[], Any], heavy: bool) -> None:
        self._readers = readers
        self._work: Callable[[], Any] | None = work
        self.key = key
        self.heavy = heavy
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # only `cancel` of this class cancels it
        self._token = Cancellation()

    def cancel(self) -> None:
        """Drop the read if it is waiting, interrupt it if it is running. Thread-safe."""
        self._readers._drop(self)
        self._token.cancel()

    def run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            with self._token.active():
                result = work()
        except BaseException as error:  # noqa: BLE001  # raised where the future is awaited
            self.future.set_exception(error)
            del error  # its traceback refers to this frame
        else:
            self.future.set_result(result)


@dataclass(slots=True)
class _Queue:
    """The reads and the budget of one key."""

    light: deque[Job] = field(default_factory=deque)
    heavy: deque[Job] = field(default_factory=deque)
    running: int = 0
    running_heavy: int = 0
    budget_s: float = HTTP_HEAVY_BUDGET_S
    budget_at: float = 0.0

    def waiting(self) -> int:
        return len(self.light) + len(self.heavy)

    def refill(self, now: float) -> None:
        gained = (now - self.budget_at) * HTTP_HEAVY_REFILL
        self.budget_s = min(HTTP_HEAVY_BUDGET_S, self.budget_s + gained)
        self.budget_at = now

    def is_idle(self) -> bool:
        return not self.running and not self.waiting() and self.budget_s >= HTTP_HEAVY_BUDGET_S


class Readers:
    """A pool with a fixed number of threads, which start as reads arrive."""

    def __init__(self, threads: int, waiting_max: int = HTTP_WAITING_MAX) -> None:
        self._count = threads
        self._waiting_max = waiting_max
        self._key_max = max(1, threads // 2)
        self._heavy_max = max(1, threads // 2)
        self._key_heavy_max = max(1, threads // 4)
        self._changed = threading.Condition()
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        """Keyed by key, in the order of their turns."""
        self._waiting = 0
        self._running_heavy = 0
        self._closed = False
        self._threads: list[threading.Thread] = []

    @property
    def waiting(self) -> int:
        """Number of reads that have not started."""
        return self._waiting

    def submit(self, key: str, work: Callable[[], Any], *, heavy: bool = False) -> Job:
        """Queue a read. Raises BusyError or KeyBusyError if it should be retried later."""
        job = Job(self, key, work, heavy)
        with self._changed:
            if self._closed or self._waiting >= self._waiting_max:
                raise BusyError
            queue = self._queue(key)
            if queue.waiting() >= HTTP_KEY_WAITING_MAX:
                raise KeyBusyError("Too many requests of this key are waiting.")
            if heavy and queue.budget_s <= 0:
                raise _over_budget(queue)
            (queue.heavy if heavy else queue.light).append(job)
            self._waiting += 1
            if len(self._threads) < self._count:
                self._start_thread()
            self._changed.notify()
        return job

    def close(self) -> None:
        """Refuse the waiting reads, and let the running ones finish."""
        with self._changed:
            self._closed = True
            refused: list[Job] = []
            for queue in self._queues.values():
                refused += (*queue.light, *queue.heavy)
                queue.light.clear()
                queue.heavy.clear()
            self._waiting = 0
            self._changed.notify_all()
        for job in refused:
            job.future.set_exception(BusyError())
        for thread in self._threads:
            thread.join()

    def _queue(self, key: str) -> _Queue:
        now = clock.monotonic()
        found = self._queues.get(key)
        if found is None:
            if len(self._queues) >= HTTP_KEYS_REMEMBERED:
                self._forget_idle(now)
            found = self._queues[key] = _Queue(budget_at=now)
        found.refill(now)
        return found

    def _forget_idle(self, now: float) -> None:
        for queue in self._queues.values():
            queue.refill(now)
        for key in [key for key, queue in self._queues.items() if queue.is_idle()]:
            del self._queues[key]

    def _start_thread(self) -> None:
        name = f"vestige-http-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (job := self._wait_for_job()) is not None:
            started = clock.monotonic()
            job.run()
            self._finish(job, clock.monotonic() - started)
            del job  # frees its result while the thread waits for the next job

    def _wait_for_job(self) -> Job | None:
        """Return the next read that may run. None: the pool is closed."""
        with self._changed:
            while not self._closed:
                job = self._next_job()
                if job is not None:
                    return job
                self._changed.wait()
        return None

    def _next_job(self) -> Job | None:
        for key, queue in self._queues.items():
            job = self._pop(queue)
            if job is not None:
                self._queues.move_to_end(key)
                self._waiting -= 1
                queue.running += 1
                queue.running_heavy += job.heavy
                self._running_heavy += job.heavy
                return job
        return None

    def _pop(self, queue: _Queue) -> Job | None:
        if queue.running >= self._key_max:
            return None
        if queue.light:
            return queue.light.popleft()
        heavy_allowed = (
            self._running_heavy < self._heavy_max and queue.running_heavy < self._key_heavy_max
        )
        return queue.heavy.popleft() if queue.heavy and heavy_allowed else None

    def _finish(self, job: Job, seconds: float) -> None:
        refused: list[Job] = []
        with self._changed:
            queue = self._queues[job.key]
            queue.running -= 1
            queue.running_heavy -= job.heavy
            self._running_heavy -= job.heavy
            if job.heavy:
                queue.refill(clock.monotonic())
                queue.budget_s -= seconds
                if queue.budget_s <= 0:
                    refused = list(queue.heavy)
                    queue.heavy.clear()
                    self._waiting -= len(refused)
            self._changed.notify_all()  # reads that waited for this key's or the heavy share
        for waiting in refused:
            waiting.future.set_exception(_over_budget(queue))

    def _drop(self, job: Job) -> None:
        with self._changed:
            queue = self._queues.get(job.key)
            waiting = None if queue is None else queue.heavy if job.heavy else queue.light
            if waiting is None or job not in waiting:
                return
            waiting.remove(job)
            self._waiting -= 1
        job.future.set_exception(CancelledReadError())


def _over_budget(queue: _Queue) -> KeyBusyError:
    wait_s = 1 - queue.budget_s / HTTP_HEAVY_REFILL
    return KeyBusyError("This key's budget for queries and searches is used up.", wait_s)


__all__ = ["BusyError", "Job", "KeyBusyError", "Readers"]
