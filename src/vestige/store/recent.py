"""What was used lately, up to a weight: a cache for ids and texts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """What was used lately, up to a weight. Two generations: cheaper than a strict order."""

    def __init__(self, weight_max: int) -> None:
        self._young_max = weight_max // 2
        self.clear()

    def clear(self) -> None:
        self._young: dict[Key, tuple[Value, int]] = {}
        self._old: dict[Key, tuple[Value, int]] = {}
        self._weight = 0

    def get(self, key: Key) -> Value | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> None:
        if weight > self._young_max:
            return
        if self._weight + weight > self._young_max:
            self._old = self._young
            self._young = {}
            self._weight = 0
        self._young[key] = (value, weight)
        self._weight += weight

    def update(self, found: Mapping[Key, Value]) -> None:
        """Many of weight 1, as the latest."""
        if self._weight + len(found) > self._young_max:
            self._old, self._young, self._weight = self._young, {}, 0
        for key, value in found.items():
            self._young[key] = (value, 1)
        self._weight += len(found)
