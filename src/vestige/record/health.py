"""How a home does: what `doctor` tells. Looked up in collector/health.py."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a home."""

    home: str
    store: str
    store_bytes: int
    runs: int
    spans: int
    logs: int
    bodies: int
    body_bytes: int
    journal_files: int
    journal_bytes: int
    lag_bytes: int
    """Journal bytes that are not in the store yet."""
    collecting: bool
    writers_alive: int
    writers_dead: int
    captures_dead: int
    """Debug bundles that a process which is gone captured, but never exported."""
    dropped: int
    missing: int
    malformed: int
    scanner: str
    retention_age_s: float
    retention_body_bytes: int
    problems: list[str]
