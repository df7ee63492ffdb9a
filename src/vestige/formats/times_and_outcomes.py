"""Times and test outcomes in the words of test-suite formats. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, cast

from vestige.limits import TIME_MAX_NS

CaseOutcome = Literal["pass", "fail", "skip", "unknown"]

_OUTCOMES: Final = {
    "pass": "pass", "passed": "pass", "ok": "pass", "xpass": "pass",
    "fail": "fail", "failed": "fail", "error": "fail",
    "skip": "skip", "skipped": "skip", "xfail": "skip",
}  # fmt: skip


def parse_outcome(text: object) -> CaseOutcome:
    outcome = _OUTCOMES.get(text.lower()) if isinstance(text, str) else None
    return cast(CaseOutcome, outcome or "unknown")


def parse_time_ns(text: object) -> int | None:
    """Parse RFC 3339 to nanoseconds, in UTC without a zone; None if it is not a valid time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        elapsed = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    ns = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000_000 + elapsed.microseconds * 1_000
    return ns if 0 <= ns <= TIME_MAX_NS else None


def render_time(time_ns: int, exact: bool = False) -> str:
    """Format as RFC 3339 in UTC, to the second, or with `exact` to the microsecond."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{time_ns // 1000 % 1_000_000:06d}Z" if exact else f"{text}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
