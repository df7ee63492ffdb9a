"""Words that all formats of test suites share: moments as text, and how a case ended. Pure."""

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


def case_outcome(text: object) -> CaseOutcome:
    """Others' words for how a case ended."""
    return (
        cast(CaseOutcome, _OUTCOMES.get(text.lower(), "unknown"))
        if isinstance(text, str)
        else "unknown"
    )


def parse_time_ns(text: object) -> int | None:
    """RFC 3339 to nanoseconds; without a zone, UTC. None: it is no time that a record can have."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        passed = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    ns = (passed.days * 86_400 + passed.seconds) * 1_000_000_000 + passed.microseconds * 1_000
    return ns if 0 <= ns <= TIME_MAX_NS else None


def render_time(time_ns: int, exact: bool = False) -> str:
    """RFC 3339 in UTC, as the typed files write it: to the second. `exact`: to the microsecond."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{time_ns // 1000 % 1_000_000:06d}Z" if exact else f"{text}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
