"""Words of OpenWOP v1, and how ids and times are written there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

FORMAT: Final = "openwop"
BUNDLE_VERSION: Final = "1.0"
"""The text says "1", its schema wants a dot. Both are read."""
PROTOCOL_VERSION: Final = "1.1"

Mode = Literal["mask", "omit", "hash", "passthrough"]
MODES: Final[tuple[Mode, ...]] = ("mask", "omit", "hash", "passthrough")

REDACTED: Final = "[REDACTED]"
OMITTED: Final = "[OMITTED]"
"""The value of a required field whose real value must not be exported."""
INTERNAL: Final = "[INTERNAL]"
"""Replaces details of the machine: addresses, host names, connection strings."""

TERMINAL: Final = ("run.completed", "run.failed", "run.cancelled")
ENDED: Final = ("completed", "failed", "cancelled")
"""Statuses of a run that has ended."""

STATUS_OF: Final = {
    "running": "running",
    "ok": "completed",
    "unknown": "completed",
    "cancelled": "cancelled",
}
"""Our outcomes; every other one is `failed`, and the error's code says which."""

EVENTS_CUT: Final = "events_truncated_to_size_cap"

NODE_ID: Final = "openwop.node_id"
"""An attribute by which a program names the node that a span is; without it, the span's id does."""

SPAN_KEYS: Final = frozenset(
    f"openwop.{name}"
    for name in (
        "run_id",
        "workflow_id",
        "protocol_version",
        "node_id",
        "node_type",
        "node_attempt",
        "cost.usd",
        "cost.tokens.input",
        "cost.tokens.output",
        "cost.model",
        "cost.provider",
        "cost.duration_ms",
    )
)
"""The attributes that a span goes out with. Each key is listed: a prefix would let anything by."""

_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def status_of(outcome: str) -> str:
    return STATUS_OF.get(outcome, "failed")


def render_time(ns: int) -> str:
    """`2026-05-01T12:34:56.123456Z`."""
    try:
        when = _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:
        when = datetime.max
    return when.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time_ns(text: object) -> int | None:
    """Parse an ISO 8601 time with a zone to nanoseconds since 1970; None if it is not one."""
    when = parse_time(text)
    if when is None:
        return None
    ns = (when - _EPOCH) // timedelta(microseconds=1) * 1000
    return ns if 0 <= ns <= 2**62 else None


def parse_time(text: object) -> datetime | None:
    if not isinstance(text, str) or len(text) > 64 or not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
