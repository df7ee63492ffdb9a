"""A bounded cache for ids and texts that evicts approximately the least recently used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """A cache of two generations, which is cheaper than a strict order of use.

    `weigh` returns the weight of a value. Without it, every value weighs 1.
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

    def update(self, values: Mapping[Key, Value]) -> None:
        """Put many values of weight 1."""
        assert self._weigh is None
        self._make_room(len(values))
        self._young.update(values)
        self._weight += len(values)

    def _make_room(self, weight: int) -> None:
        if self._weight + weight > self._young_max:
            self._old, self._young, self._weight = self._young, {}, 0
