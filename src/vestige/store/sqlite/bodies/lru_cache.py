"""What was used lately, up to a weight: a cache for ids and texts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """What was used lately, up to a weight. Two generations: cheaper than a strict order.

    `weigh` tells how heavy a value is; without it each weighs 1.
    """

    def __init__(self, weight_max: int, weigh: Callable[[Value], int] | None = None) -> None:
        self._young_max = weight_max // 2
        self._weigh = weigh
        self.clear()

    def clear(self) -> None:
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}
        self._weight = 0

    def get(self, key: Key) -> Value | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Key, value: Value) -> None:
        weight = 1 if self._weigh is None else self._weigh(value)
        if weight > self._young_max:
            return
        self._make_room(weight)
        self._young[key] = value
        self._weight += weight

    def update(self, found: Mapping[Key, Value]) -> None:
        """Many of weight 1, as the latest."""
        assert self._weigh is None
        self._make_room(len(found))
        self._young.update(found)
        self._weight += len(found)

    def _make_room(self, weight: int) -> None:
        if self._weight + weight > self._young_max:
            self._old, self._young, self._weight = self._young, {}, 0
