"""Parse the lines of a bundle: a snapshot of a session, an entry of its log.

    snapshot = parse_snapshot(line, index)     # never raises: problems are in `.errors`
    entry = parse_log(line)                    # None: no log entry

A snapshot needs only a version and a time. Other fields are used if they have the right type. Times
are kept as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from vestige.formats.wink.manifest import nesting, parse_time
from vestige.limits import BUNDLE_NESTING_MAX

LOG_KEYS: Final = ("timestamp", "level", "logger", "event", "message", "context")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_object = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class SnapshotSlice:
    """A typed part of a session's state."""

    slice_type: str
    item_type: str
    items: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotPayload:
    """A session's state at one moment."""

    version: str
    created_at: str
    slices: tuple[SnapshotSlice, ...] = ()
    parent_id: str | None = None
    children_ids: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    policies: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    index: int = 0
    """Its place in the bundle, from 0."""
    errors: tuple[str, ...] = ()
    """The problems of it."""
    raw: str = field(default="", repr=False)
    """The line itself."""

    @property
    def valid(self) -> bool:
        return not self.errors

    @property
    def session_id(self) -> str | None:
        return self.tags.get("session_id")

    def find_slice(self, slice_type: str) -> SnapshotSlice | None:
        """Find a slice by its full name, or by the part after the colon or the last dot."""
        for one in self.slices:
            short = one.slice_type.rpartition(":")[2].rpartition(".")[2]
            if slice_type in (one.slice_type, short):
                return one
        return None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log entry."""

    timestamp: str
    level: str
    logger: str
    event: str
    message: str
    context: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY, repr=False)
    """Keys that the format does not know."""


def parse_object(line: str) -> dict[str, Any] | str:
    """Return a JSON object, or the reason why the line is not one."""
    try:
        raw = line.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    if nesting(raw, BUNDLE_NESTING_MAX) > BUNDLE_NESTING_MAX:
        return f"nested deeper than {BUNDLE_NESTING_MAX} levels"
    try:
        return _object.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return f"no JSON object: {' '.join(str(error).split())[:200]}"


def parse_snapshot(line: str, index: int = 0) -> SnapshotPayload:
    """Return a snapshot. An invalid one has the reason, and its line."""
    found = parse_object(line)
    if isinstance(found, str):
        return SnapshotPayload("", "", index=index, errors=(found,), raw=line)
    errors: list[str] = []
    version, created_at = found.get("version"), found.get("created_at")
    if version != "1":
        errors.append(f"version is {_shown(version)} (expected '1')")
    if not isinstance(created_at, str) or parse_time(created_at) is None:
        errors.append(f"created_at is {_shown(created_at)} (expected an ISO 8601 time)")
    if isinstance(found.get("validation_error"), str):  # set by the recorder of the snapshot
        errors.append(found["validation_error"])
    slices, faults = _slices(found.get("slices", []))
    return SnapshotPayload(
        version if isinstance(version, str) else "",
        created_at if isinstance(created_at, str) else "",
        slices,
        _text(found.get("parent_id")),
        _texts(found.get("children_ids")),
        _mapping(found.get("tags")),
        _mapping(found.get("policies")),
        index,
        (*errors, *faults),
        line,
    )


def _slices(value: Any) -> tuple[tuple[SnapshotSlice, ...], list[str]]:
    if not isinstance(value, list):
        return (), [f"slices is {_shown(value)} (expected a list)"]
    slices: list[SnapshotSlice] = []
    faults: list[str] = []
    for number, one in enumerate(value):
        if not isinstance(one, dict) or not isinstance(one.get("slice_type"), str):
            faults.append(f"slices[{number}] has no slice_type")
            continue
        items = one.get("items", [])
        if not isinstance(items, list):
            faults.append(f"slices[{number}].items is not a list")
            items = []
        item_type = one.get("item_type")
        slices.append(
            SnapshotSlice(
                one["slice_type"],
                item_type if isinstance(item_type, str) else one["slice_type"],
                tuple(items),
            )
        )
    return tuple(slices), faults[:20]


def parse_log(line: str) -> LogEntry | None:
    """Return a log entry with unusual values as text; None if the line is not an entry."""
    found = parse_object(line)
    if isinstance(found, str) or not ({"timestamp", "message", "event"} & found.keys()):
        return None
    context = found.get("context")
    extra = {key: value for key, value in found.items() if key not in LOG_KEYS}
    if not isinstance(context, dict):
        if context is not None:
            extra["context"] = context
        context = {}
    return LogEntry(
        _as_text(found.get("timestamp")),
        _as_text(found.get("level")),
        _as_text(found.get("logger")),
        _as_text(found.get("event")),
        _as_text(found.get("message")),
        MappingProxyType(context),
        MappingProxyType(extra) if extra else _EMPTY,
    )


def render_log(entry: LogEntry) -> str:
    """Render one line, with keys in the order of the format."""
    values: dict[str, Any] = {key: getattr(entry, key) for key in LOG_KEYS[:5]}
    values["context"] = dict(entry.context)
    values.update(entry.extra)
    return msgspec.json.encode(values).decode()


def single_line(data: bytes) -> str | None:
    """Return a JSON object on one line, for a file of lines; None if the body is not an object."""
    text = data.decode(errors="surrogateescape").strip()
    if not text.startswith("{"):
        return None
    if "\n" not in text and "\r" not in text:
        return text
    try:
        # Written over several lines: the same object on one.
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _mapping(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        return _EMPTY
    return MappingProxyType({key: _as_text(one) for key, one in value.items()})


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:60]


def count_items(slices: Iterable[SnapshotSlice]) -> int:
    return sum(len(one.items) for one in slices)
