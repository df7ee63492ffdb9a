"""Queues that take turns: one per owner, so no owner waits for all of another's items.

    turns.put("tenant_a", item)
    item = turns.take()               # blocks; None: closed, and all are taken
    turns.finish("tenant_a")          # done with one of its items, by any thread

Of one owner at most `owner_max` items are taken and not finished, and of all owners `total_max`:
memory is bounded, and there is always room for another owner's item soon.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """For any number of threads."""

    def __init__(self, owner_max: int, total_max: int) -> None:
        self._owner_max = owner_max
        self._total_max = total_max
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """In the order of their turns; only owners that have an item."""
        self._taken: Counter[str] = Counter()
        self._closed = False

    def put(self, owner: str, item: T) -> None:
        with self._changed:
            self._waiting.setdefault(owner, deque()).append(item)
            self._changed.notify()

    def close(self) -> None:
        """Nothing more will be put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> T | None:
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
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
            self._changed.notify_all()

    def _next(self) -> T | None:
        if self._taken.total() >= self._total_max:
            return None
        for owner, items in self._waiting.items():
            if self._taken[owner] < self._owner_max:
                item = items.popleft()
                self._taken[owner] += 1
                if items:
                    self._waiting.move_to_end(owner)
                else:
                    del self._waiting[owner]
                return item
        return None
