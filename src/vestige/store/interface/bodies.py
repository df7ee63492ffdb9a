"""Read bodies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class BodySource(Protocol):
    """The methods that read bodies."""

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        """Return a body or a slice of it. Raise NotFoundError if it is missing or evicted."""

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        """Return complete bodies with their ids, without those that are missing or damaged."""
