"""The health of a home, as `doctor` reports it. collector/health.py collects it."""

from __future__ import annotations

from vestige._runtime.msgspec_or_fallback import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a home at one moment."""

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
    """Debug bundles that a dead process captured but did not export."""
    dropped: int
    missing: int
    malformed: int
    scanner: str
    retention_age_s: float
    retention_body_bytes: int
    problems: list[str]
