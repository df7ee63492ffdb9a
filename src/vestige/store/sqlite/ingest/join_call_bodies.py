"""Give model calls the bodies that their exporter sends as log records.

Spans and log records arrive in different requests, in any order. After each batch, the calls inside
a span are matched again with the log records of that span (record/call_bodies.py). So the result
depends on what has arrived, and not on when. The log records stay, and refer to the same bodies.

    groups = find_groups(spans, logs)       # runs, and spans around calls, that a batch touched
    join(connection, groups)                # after its rows were written
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from vestige.limits import CALL_BODIES_MAX
from vestige.record.call_bodies import CALL_BODY, INPUT, OUTPUT, Call, find_call
from vestige.record.otlp_sequence_numbers import is_log_seq
from vestige.record.types import MODEL_CALL_TYPES
from vestige.store.interface.stats import to_count
from vestige.store.sqlite.ingest.batch_rows import IS_MODEL_CALL, SpanRow, render_json

INDEXES = """
-- Log records of external exporters that have a body, by their span.
CREATE INDEX IF NOT EXISTS logs_carried_bodies ON logs(run, span_id)
  WHERE body IS NOT NULL AND seq >= 4503599627370496;
"""

Group = tuple[int, str]
"""The row of a run, and the id of a span around model calls."""

_SIDES: Final = {INPUT: "request", OUTPUT: "response"}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Event(NamedTuple):
    """A log record with the body of a call."""

    time_ns: int
    seq: int
    side: str
    request_id: str
    body: tuple[int, int, str | None]
    """The columns of a body: its id, size and note."""
    attributes: Mapping[str, Any]


def find_groups(spans: Iterable[SpanRow], logs: Iterable[tuple[Any, ...]]) -> set[Group]:
    """Return where a batch has model calls of an exporter, or bodies of calls."""
    groups = {
        (span.run, span.parent_id)
        for span in spans
        if span.parent_id is not None and span.type in MODEL_CALL_TYPES
    }
    for run, span_id, _, seq, *_, attributes, _ in logs:
        if span_id is not None and is_log_seq(seq) and f'"{CALL_BODY}"' in attributes:
            groups.add((run, span_id))
    return groups


def join(connection: sqlite3.Connection, groups: Iterable[Group]) -> None:
    for group in sorted(groups):
        events = _read_events(connection, group)
        if events:
            _join_group(connection, group, events)


def _read_events(connection: sqlite3.Connection, group: Group) -> list[_Event]:
    events = []
    for time_ns, seq, text, *body in connection.execute(_LOGS, group):
        attributes = _decode(text) if text else {}
        side = attributes.get(CALL_BODY)
        if side in _SIDES:
            request_id = str(attributes.get("request_id") or "")
            events.append(_Event(time_ns, seq, side, request_id, (*body,), attributes))
    return events


def _join_group(connection: sqlite3.Connection, group: Group, events: list[_Event]) -> None:
    rows = connection.execute(_CALLS, group).fetchall()
    sent = {side: {event.body[0] for event in events if event.side == side} for side in _SIDES}
    calls: dict[str, list[Call]] = {INPUT: [], OUTPUT: []}
    for row, started_ns, duration_ns, text, *bodies in rows:
        attributes = _decode(text) if text else {}
        request_id = str(attributes.get("request_id") or "")
        call = Call(row, started_ns, started_ns + duration_ns, request_id)
        for side, body in zip(_SIDES, (bodies[0], bodies[3]), strict=True):
            if body is None or body in sent[side]:  # A body of the span itself stays.
                calls[side].append(call)
    joined: dict[tuple[int, str], _Event] = {}
    for event in events:
        found = find_call(calls[event.side], event.time_ns, event.request_id)
        if found is not None:
            joined.setdefault((found.id, event.side), event)
    own = {side: {call.id for call in calls[side]} for side in _SIDES}
    for row, _, _, text, *bodies in rows:
        attributes = _decode(text) if text else {}
        changed = dict(attributes)
        columns: list[Any] = []
        for side, before in zip(_SIDES, (bodies[:3], bodies[3:]), strict=True):
            if row in own[side]:
                match = joined.get((row, side))
                columns += (None, None, None) if match is None else match.body
                _describe_truncation(changed, side, match)
            else:
                columns += before
        if columns != bodies or changed != attributes:
            connection.execute(_UPDATE, (*columns, render_json(changed) or None, row))
            # Followers of the change feed have read the span without its body.
            connection.execute("INSERT INTO closes(span) VALUES (?)", (row,))


def _describe_truncation(attributes: dict[str, Any], side: str, event: _Event | None) -> None:
    """Set or remove the attributes of a call whose exporter truncated a body."""
    truncated, length = (f"{_SIDES[side]}_body_{name}" for name in ("truncated", "length"))
    attributes.pop(truncated, None)
    attributes.pop(length, None)
    if event is not None and event.attributes.get("body_truncated") is True:
        attributes[truncated] = True
        attributes[length] = to_count(event.attributes.get("body_length"))


_LOGS: Final = f"""
SELECT time_ns, seq, attributes, body, body_bytes, body_info
FROM logs INDEXED BY logs_carried_bodies
WHERE run = ? AND span_id = ? AND body IS NOT NULL AND seq >= 4503599627370496
ORDER BY time_ns, seq LIMIT {2 * CALL_BODIES_MAX}
"""
_CALLS: Final = f"""
SELECT id, started_ns, duration_ns, attributes, input_body, input_bytes, input_info, output_body,
  output_bytes, output_info
FROM spans INDEXED BY spans_carried
WHERE run = ? AND parent_id = ? AND {IS_MODEL_CALL} AND seq >= 4294967296
  AND duration_ns IS NOT NULL
ORDER BY started_ns, span_id LIMIT {CALL_BODIES_MAX}
"""
_UPDATE: Final = """
UPDATE spans SET input_body = ?, input_bytes = ?, input_info = ?, output_body = ?,
  output_bytes = ?, output_info = ?, attributes = ? WHERE id = ?
"""
