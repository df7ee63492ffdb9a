"""Types of single values of a bundle, from the published schemas."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from vestige.formats.openwop.note_mapping import SIGNALS
from vestige.formats.openwop.times import parse_time

Holds = Callable[[Any], bool]
_VENDOR: Final = re.compile(
    r"(?!(?:openwop|core|community|vendor|private|local)\.)[a-z][a-zA-Z0-9_-]*(?:\.[a-zA-Z0-9_-]+)+"
)
_WITHOUT_DOTS_IN_FIRST: Final = frozenset(
    ("core.workflowChain.event", "core.workflowChain.confidence-escalated")
)
"""The two types of the catalog that have a reserved prefix; all others also fit the vendors'
shape."""


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_id(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 128


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_int(value: Any) -> bool:
    """Return whether a value is an integer. JSON Schema accepts 3.0, too."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return is_int(value) and value >= 0


def is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def is_time(value: Any) -> bool:
    return parse_time(value) is not None


def or_null(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def is_event_type(value: Any) -> bool:
    return isinstance(value, str) and (
        value in _WITHOUT_DOTS_IN_FIRST or _VENDOR.fullmatch(value) is not None
    )


def is_signal(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("kind") not in SIGNALS:
        return False
    kind = value["kind"]
    if kind != "flag" and kind not in value:
        return False
    rating: Any = value.get("rating", 1)
    return (
        value.keys() <= {"kind", "rating", "label", "correction"}
        and is_int(rating)
        and 1 <= rating <= 5
        and all(is_text(value[key]) for key in ("label", "correction") if key in value)
    )


def is_target(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= {"runId", "eventId", "nodeId"}
        and is_name(value.get("runId"))
        and all(map(is_text, value.values()))
    )


def is_actor(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"principalRef"}
        and is_name(value["principalRef"])
    )


PAYLOADS: Final[dict[str, dict[str, Holds]]] = {
    "run.started": {"workflowId": is_name},
    "run.completed": {},
    "run.failed": {"error": lambda value: is_error(value)},
    "run.cancelled": {},
    "node.started": {"nodeId": is_name, "typeId": is_name},
    "node.completed": {"nodeId": is_name},
    "node.failed": {"nodeId": is_name, "error": lambda value: is_error(value)},
    "node.cancelled": {"nodeId": is_name},
    "node.skipped": {"nodeId": is_name},
    "agent.toolCalled": {"agentId": is_name, "toolName": is_name, "callId": is_name},
    "agent.toolReturned": {"agentId": is_name, "toolName": is_name, "callId": is_name},
    "provider.usage": {
        "provider": is_name,
        "model": is_name,
        "inputTokens": is_count,
        "outputTokens": is_count,
    },
    "log.appended": {
        "level": lambda value: value in ("debug", "info", "warn", "error"),
        "message": is_text,
    },
}
"""The required fields of an event's payload."""


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and is_name(value.get("code")) and is_name(value.get("message"))
