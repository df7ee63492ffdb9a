"""Patch: attributes of foreign classes wrapped, and put back as they were.

If somebody else wrapped the same attribute after us, ours stays underneath, where it only hands calls on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class Patch:
    """What was wrapped, to be undone together."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by what `make` makes of it."""
        before = owner.__dict__[name]
        after = make(before)
        update_wrapper(after, before)
        setattr(owner, name, after)
        self._done.append((owner, name, before, after))

    def undo(self) -> None:
        for owner, name, before, after in reversed(self._done):
            if owner.__dict__.get(name) is after:
                setattr(owner, name, before)
        self._done.clear()
