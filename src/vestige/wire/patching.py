"""Wrap attributes of other libraries' classes, and restore them.

If other code wrapped the same attribute afterwards, this wrapper stays and passes calls on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class Patch:
    """A set of wrapped attributes, restored together."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` with `make(owner.name)`."""
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
