"""Convert a log entry of a bundle to a `log` record and back, without loss.

Attributes of a record are flat scalars. So a scalar in the context of an entry is an attribute of
the same name, which queries can find. A nested value is JSON text under `context.NAME`, and so is
a value whose name has a meaning in records:

    {"timestamp": T, "level": "WARNING", "logger": "app.net", "event": "retry",
     "message": "m", "context": {"call": "c7", "args": {"n": 1}}}

    component app.net, level warn, message m,
    event "retry", call "c7", context.args '{"n":1}'
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from vestige.formats.protocol import TIME_MAX_NS
from vestige.formats.wink.jsonl_entries import LogEntry
from vestige.formats.wink.manifest import parse_time
from vestige.limits import ATTRIBUTE_VALUE_MAX, ATTRIBUTES_MAX
from vestige.record.types import Attributes, Scalar

LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}
_OURS: Final = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warn",
    "WARN": "warn",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
    "NOTSET": "debug",
    "TRACE": "debug",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

CONTEXT: Final = "context."
ENTRY: Final = "entry."
"""Keys of an entry beside the ones of the format."""
RESERVED: Final = frozenset(("event", "entry.level", "entry.timestamp", "entry.logger"))
MALFORMED: Final = "entry.malformed"
"""Set on a record whose body is a line that is not a log entry."""
_INT_MAX: Final = 2**63 - 1


def to_ns(text: str) -> int | None:
    """Parse an ISO time to nanoseconds; None if it is invalid, or out of the range of records."""
    when = parse_time(text)
    if when is None:
        return None
    ns = (when - _EPOCH) // timedelta(microseconds=1) * 1000
    return ns if 0 <= ns <= TIME_MAX_NS else None


def to_iso(ns: int) -> str:
    """Format as ISO 8601 in UTC with microseconds, like every time in a bundle."""
    return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat()


def our_level(level: str) -> str:
    return _OURS.get(level.upper(), level.lower() or "info")


def attributes_of(entry: LogEntry, time_ns: int | None) -> Attributes | None:
    """The attributes from which `entry_of` makes the entry again; None: too many, or too long."""
    attributes: Attributes = {}
    if entry.event:
        attributes["event"] = entry.event
    if LEVELS.get(our_level(entry.level)) != entry.level:
        attributes["entry.level"] = entry.level
    if time_ns is None or to_iso(time_ns) != entry.timestamp:
        attributes["entry.timestamp"] = entry.timestamp
    if not entry.logger:
        attributes["entry.logger"] = ""
    for key, value in entry.context.items():
        plain = key not in RESERVED and not key.startswith((CONTEXT, ENTRY))
        if plain and _is_scalar(value):
            attributes[key] = value
        else:
            attributes[CONTEXT + key] = _json(value)
    for key, value in entry.extra.items():
        attributes[ENTRY + key] = _json(value)
    if len(attributes) > ATTRIBUTES_MAX or any(
        isinstance(value, str) and len(value) > ATTRIBUTE_VALUE_MAX for value in attributes.values()
    ):
        return None
    return attributes


def entry_of(
    time_ns: int, level: str, component: str, message: str, attributes: Mapping[str, Scalar]
) -> LogEntry:
    """Return the entry of a record; every record has one."""
    context: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in RESERVED:
            continue
        for prefix, into in ((CONTEXT, context), (ENTRY, extra)):
            if key.startswith(prefix) and isinstance(value, str):
                try:
                    into[key.removeprefix(prefix)] = msgspec.json.decode(value)
                except (msgspec.DecodeError, UnicodeError, RecursionError):
                    continue
                break
        else:
            context[key] = value
    return LogEntry(
        _text(attributes.get("entry.timestamp"), to_iso(time_ns)),
        _text(attributes.get("entry.level"), LEVELS.get(level, level.upper())),
        _text(attributes.get("entry.logger"), component),
        _text(attributes.get("event"), ""),
        message,
        context,
        extra,
    )


def _is_scalar(value: Any) -> bool:
    if type(value) is int:
        return -_INT_MAX <= value <= _INT_MAX
    return value is None or type(value) in (str, float, bool)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Scalar, default: str) -> str:
    return value if isinstance(value, str) else default
