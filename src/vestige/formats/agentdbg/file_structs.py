"""The AgentDbg v0.1 trace format on disk: run.json, and one event per line of events.jsonl.

    line = render_event(event)            # strict JSON, one line, newline included
    text = render_run(run_file)           # as AgentDbg writes it: indented
    timestamp(ns)                         # '2026-02-15T20:31:05.123Z'

The published schemas allow no other top-level fields. Data that the format has no field for is
stored in `meta` (META_KEY) or in a separate file (SIDECAR_FILE).

Elsewhere: records become events in formats/agentdbg/from_records.py, events become records in
formats/agentdbg/to_records.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from vestige.formats.protocol import TIME_MAX_NS
from vestige.record.coercion import clean_text

SPEC_VERSION: Final = "0.1"
RUN_FILE: Final = "run.json"
EVENTS_FILE: Final = "events.jsonl"
SIDECAR_FILE: Final = "vestige.ndjson"
"""The records of an exported run, with the data that the format has no field for."""

META_KEY: Final = "vestige"
"""The key in an event's `meta` for data that the format has no field for."""

REDACTED: Final = "__REDACTED__"
TRUNCATED: Final = "__TRUNCATED__"

EventType = Literal[
    "RUN_START", "RUN_END", "LLM_CALL", "TOOL_CALL", "STATE_UPDATE", "ERROR", "LOOP_WARNING"
]
EVENT_TYPES: Final[tuple[str, ...]] = get_args(EventType)
RunStatus = Literal["running", "ok", "error"]

Uuid = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uuid"})]
Timestamp = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
MaybeUuid = Annotated[str | None, msgspec.Meta(extra_json_schema={"format": "uuid"})]
MaybeTimestamp = Annotated[str | None, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Event(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line of events.jsonl."""

    spec_version: Literal["0.1"]
    event_id: Uuid
    run_id: Uuid
    parent_id: MaybeUuid
    event_type: EventType
    ts: Timestamp
    duration_ms: int | None
    name: str
    payload: dict[str, Any]
    """Depends on the type. A value may be `msgspec.Raw`: JSON that is written unchanged."""
    meta: dict[str, Any]


class Counts(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Counts of a run. `errors` are ERROR events; a failed call is not one."""

    llm_calls: Natural
    tool_calls: Natural
    errors: Natural
    loop_warnings: Natural

    def add(self, event_type: str) -> None:
        """Count an event."""
        if event_type == "LLM_CALL":
            self.llm_calls += 1
        elif event_type == "TOOL_CALL":
            self.tool_calls += 1
        elif event_type == "ERROR":
            self.errors += 1
        elif event_type == "LOOP_WARNING":
            self.loop_warnings += 1


class RunFile(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """run.json: written when a run starts, and again when it ends."""

    spec_version: Literal["0.1"]
    run_id: Uuid
    run_name: str | None
    started_at: Timestamp
    ended_at: MaybeTimestamp
    duration_ms: Natural | None
    status: RunStatus
    counts: Counts
    last_event_ts: MaybeTimestamp


def no_counts() -> Counts:
    return Counts(0, 0, 0, 0)


# --- as text ---------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def render_event(event: Event) -> bytes:
    """Render one line of strict JSON: no NaN, no lone surrogate."""
    try:
        return _encode(event) + b"\n"
    except UnicodeEncodeError:
        return (
            _encode(clean_value(msgspec.to_builtins(event, builtin_types=(msgspec.Raw,)))) + b"\n"
        )


def render_run(run: RunFile) -> bytes:
    return msgspec.json.format(_encode(clean_value(msgspec.to_builtins(run))), indent=2)


def clean_value(value: Any) -> Any:
    """Return the value with lone surrogates escaped."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_value(key): clean_value(inner) for key, inner in value.items()}
    return [clean_value(inner) for inner in value] if isinstance(value, list) else value


# --- time ------------------------------------------------------------------------------------

_MS = 1_000_000
_DAY_MS = 86_400_000
_day: tuple[int, str] = (-1, "")
_moment: tuple[int, str] = (-1, "")


def timestamp(time_ns: int) -> str:
    """Format a time in UTC, with milliseconds and a trailing Z."""
    global _day, _moment  # those of the last call: nearly always the same, and slow to compute
    whole_ms = time_ns // _MS
    last_ms, text = _moment
    if last_ms == whole_ms:
        return text
    days, in_day = divmod(min(whole_ms, _LAST_MS), _DAY_MS)
    known, date = _day
    if known != days:
        date = datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")
        _day = (days, date.rjust(10, "0"))
        date = _day[1]
    seconds, ms = divmod(in_day, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{date}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z"
    _moment = (whole_ms, text)
    return text


_LAST_MS = 253_402_300_799_999  # the end of the year 9999: more has no written form


def parse_timestamp(text: Any) -> int | None:
    """Nanoseconds, or None: any ISO 8601 moment is understood, without a zone it is UTC. One that
    no record can have is the nearest that it can."""
    global _second  # of the last call: the next event is mostly of the same one
    if not isinstance(text, str) or len(text) > 64:
        return None
    second, ns = _second
    in_second_ns = _IN_SECOND.get(text[19:])
    if in_second_ns is not None and text[:19] == second:
        return ns + in_second_ns
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    ns = (since.days * 86_400 + since.seconds) * 1_000_000_000
    if 0 <= ns < TIME_MAX_NS - 1_000_000_000 and in_second_ns is not None:
        _second = (text[:19], ns)
    return max(0, min(ns + since.microseconds * 1000, TIME_MAX_NS))


_IN_SECOND = {f".{ms:03}Z": ms * _MS for ms in range(1000)}
_second: tuple[str, int] = ("", 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
