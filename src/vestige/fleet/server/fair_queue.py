"""A queue in which owners take turns, so that none waits for all items of another.

    queue.put("tenant_a", item)
    item = queue.get()                # blocks; None: the queue is closed and empty
    queue.finish("tenant_a")          # one of its items is done; any thread

At most `owner_max` items of one owner are in progress, and `total_max` of all owners. So memory is
bounded, and another owner's item never waits long.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A thread-safe queue with one sub-queue per owner."""

    def __init__(self, owner_max: int, total_max: int) -> None:
        self._owner_max = owner_max
        self._total_max = total_max
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """Owners with waiting items, in the order of their turns."""
        self._in_progress: Counter[str] = Counter()
        self._closed = False

    def put(self, owner: str, item: T) -> None:
        with self._changed:
            self._waiting.setdefault(owner, deque()).append(item)
            self._changed.notify()

    def close(self) -> None:
        """End the queue: `get` returns None once it is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def get(self) -> T | None:
        with self._changed:
            while True:
                item = self._next()
                if item is not None:
                    return item
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()

    def finish(self, owner: str) -> None:
        with self._changed:
            self._in_progress[owner] -= 1
            if not self._in_progress[owner]:
                del self._in_progress[owner]
            self._changed.notify_all()

    def _next(self) -> T | None:
        if self._in_progress.total() >= self._total_max:
            return None
        for owner, items in self._waiting.items():
            if self._in_progress[owner] < self._owner_max:
                item = items.popleft()
                self._in_progress[owner] += 1
                if items:
                    self._waiting.move_to_end(owner)
                else:
                    del self._waiting[owner]
                return item
        return None
