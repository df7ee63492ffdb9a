"""Find spans by id, by the value of an attribute, and by the links that lead to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from vestige.store.protocol import SpanRef

PREFIX_MIN: Final = 4
"""Shorter prefixes of span ids match too many spans."""

SPAN_REF: Final = "r.run_id, s.span_id, r.id, s.number, s.type, s.name"
"""The columns of `to_span_ref`."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def to_span_ref(row: Sequence[Any]) -> SpanRef:
    run_id, span_id, run, number, span_type, name = row[:6]
    if span_id is None or number is None:
        return SpanRef(run_id, None, f"r{run}", "run", name or "?")
    return SpanRef(run_id, span_id, f"r{run}.s{number}", span_type, name)


def find_spans(connection: sqlite3.Connection, text: str) -> list[SpanRef]:
    text = text.strip().lower()
    run, dot, number = text.partition(".s")
    values: tuple[int | str, ...]
    if dot and run[:1] == "r" and run[1:].isdecimal() and number.isdecimal():
        where, values = "s.run = ? AND s.number = ?", (int(run[1:][:18]), int(number[:18]))
    elif len(text) >= PREFIX_MIN:
        where, values = "s.span_id >= ? AND s.span_id < ?", (text, text + "\U0010ffff")
    else:
        return []
    rows = connection.execute(
        # Spans are indexed by run, then by id: all runs are looked through, not all spans.
        f"SELECT {SPAN_REF} FROM runs r CROSS JOIN spans s ON s.run = r.id WHERE {where}"
        " ORDER BY s.id LIMIT 50",
        values,
    )
    found = [to_span_ref(row) for row in rows]
    return [ref for ref in found if ref.span_id == text] or found


def find_attribute(connection: sqlite3.Connection, value: str, limit: int) -> list[SpanRef]:
    """Return spans with exactly this value of any attribute, newest first.

    A model call has the ids of its tool calls as attributes (`tool_call.0.id`). It is left out
    if the span of the tool call itself is found.
    """
    text = msgspec.json.encode(value).decode()
    forms = (value, text) if value.isdecimal() else (text,)
    found: dict[tuple[str, str | None], SpanRef] = {}
    callers: set[tuple[str, str | None]] = set()
    for table in ("spans", "logs"):
        for row in connection.execute(
            _ATTRIBUTE[table].format(" OR ".join([_HAS] * len(forms))), forms
        ):
            ref = to_span_ref(row)
            keys = [key for key, each in _decode(row[6]).items() if str(each) == value]
            if keys:
                found.setdefault((ref.run_id, ref.span_id), ref)
                if all(key.startswith(_TOOL_CALL) for key in keys):
                    callers.add((ref.run_id, ref.span_id))
            if len(found) >= limit:
                break
    if len(callers) < len(found):
        found = {key: ref for key, ref in found.items() if key not in callers}
    return list(found.values())


_TOOL_CALL = "tool_call."
_HAS = "instr(x.attributes, ?) > 0"
_ATTRIBUTE = {
    "spans": "SELECT r.run_id, x.span_id, r.id, x.number, x.type, x.name, x.attributes"
    " FROM spans x JOIN runs r ON r.id = x.run WHERE {} ORDER BY x.id DESC",
    "logs": "SELECT r.run_id, x.span_id, r.id, s.number, s.type, coalesce(s.name, r.name),"
    " x.attributes FROM logs x JOIN runs r ON r.id = x.run"
    " LEFT JOIN spans s ON s.span_id = x.span_id AND s.run = x.run WHERE {} ORDER BY x.id DESC",
}


def links_to(
    connection: sqlite3.Connection, run_id: str, span_id: str
) -> list[tuple[SpanRef, str | None]]:
    rows = connection.execute(
        f"SELECT {SPAN_REF}, l.reason FROM links l JOIN runs r ON r.id = l.run"
        " JOIN spans s ON s.run = l.run AND s.span_id = l.span_id"
        " WHERE l.target_span = ? AND coalesce(l.target_run, r.run_id) = ?"
        " ORDER BY l.rowid LIMIT 50",
        (span_id, run_id),
    )
    return [(to_span_ref(row), row[6]) for row in rows]
