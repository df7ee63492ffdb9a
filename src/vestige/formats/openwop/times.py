"""Parse and render times of OpenWOP, which are ISO 8601 with a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
