"""Retention: delete old runs, evict bodies, and pin runs."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from vestige.limits import RETENTION_AGE_S, RETENTION_BODY_BYTES


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The limits of a retention pass. None means no limit."""

    age_max_s: float | None
    body_bytes_max: int | None
    runs_max: int | None = None
    """Runs that are deleted at most, the oldest first."""


class PruneResult(msgspec.Struct, frozen=True):
    """The counts that a retention pass removed, or would remove."""

    runs: int
    spans: int
    bodies: int
    freed_bytes: int


DEFAULT_RETENTION: Final = RetentionPolicy(RETENTION_AGE_S, RETENTION_BODY_BYTES)


class StoreSizes(msgspec.Struct, frozen=True):
    """Row counts and sizes. A tenant has no file of its own, so 0 bytes."""

    runs: int
    spans: int
    logs: int
    bodies: int
    file_bytes: int
    body_bytes: int


class RetentionStore(Protocol):
    """The methods of retention."""

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> PruneResult:
        """Apply a policy. A dry run changes nothing, and its numbers are exact."""

    def pin(self, run_id: str, pinned: bool = True) -> None:
        """Keep a run, whatever the policy is."""

    def sizes(self) -> StoreSizes: ...
