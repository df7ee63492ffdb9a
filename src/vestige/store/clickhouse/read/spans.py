"""The SQL that finds spans and related runs, and reads the fields that a question needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from vestige.record.otlp_sequence_numbers import order_group
from vestige.record.run import PARTIAL, BodyRef, LogInfo
from vestige.record.types import OWN_COMPONENT
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read.run_list import find_rows
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.protocol import RunInputsOutputs, SpanFacts, SpanRef

PREFIX_MIN: Final = 4
"""Shorter prefixes of span ids match too many spans."""

SPANS_MAX: Final = 5_000
"""Spans of a run that is read for a list."""

_CANDIDATES_MAX: Final = 2_000
_FACTS_PER_QUERY: Final = 1_000
_decode = msgspec.json.Decoder(dict[str, Any]).decode

SPAN_REF: Final = "r.run_id, s.span_id, r.id, s.number, s.type, s.name"


def to_span_ref(row: Sequence[Any]) -> SpanRef:
    run_id, span_id, run, number, span_type, name = row[:6]
    if not span_id or not number:
        return SpanRef(run_id, None, f"r{run}", "run", name or "?")
    return SpanRef(run_id, span_id, f"r{run}.s{number}", span_type, name)


def find_spans(client: Client, view: View, text: str) -> list[SpanRef]:
    text = text.strip().lower()
    run, dot, number = text.partition(".s")
    values: dict[str, Any]
    if dot and run[:1] == "r" and run[1:].isdecimal() and number.isdecimal():
        where = "run = {run:Int64} AND number = {number:Int64}"
        values = {"run": int(run[1:][:18]), "number": int(number[:18])}
    elif len(text) == 16:
        where, values = "span_id = {key:String}", {"key": text}
    elif len(text) >= PREFIX_MIN:
        where, values = "startsWith(span_id, {key:String})", {"key": text}
    else:
        return []
    # The span id of a row may change, so the newest version is tested again.
    ids = f"SELECT id FROM spans WHERE {view.visible('spans')} AND {where} LIMIT {_CANDIDATES_MAX}"
    runs = ids.replace("SELECT id", "SELECT run", 1)
    rows = client.query(
        f"SELECT {SPAN_REF} FROM {view.current('spans', f'id IN ({ids})')} s"
        f" JOIN {view.current('runs', f'id IN ({runs})')} r ON r.id = s.run"
        f" WHERE {where.replace('run =', 's.run =')}"
        " ORDER BY s.id LIMIT 50",
        **view.parameters(),
        **values,
    )
    found = [to_span_ref(row) for row in rows]
    return [ref for ref in found if ref.span_id == text] or found


def find_attribute(client: Client, view: View, value: str, limit: int) -> list[SpanRef]:
    """Return spans with exactly this value of any attribute, newest first."""
    text = msgspec.json.encode(value).decode()
    forms = [value, text] if value.isdecimal() else [text]
    found: dict[tuple[str, str | None], SpanRef] = {}
    callers: set[tuple[str, str | None]] = set()
    for table in ("spans", "logs"):
        ids = (
            f"SELECT id FROM {table} WHERE {view.visible(table)}"
            " AND multiSearchAny(coalesce(attributes, ''), {forms:Array(String)})"
            f" ORDER BY id DESC LIMIT {_CANDIDATES_MAX}"
        )
        runs = ids.replace("SELECT id", "SELECT run", 1)
        rows = client.query(
            _ATTRIBUTE[table].format(
                rows=view.current(table, f"id IN ({ids})"),
                runs=view.current("runs", f"id IN ({runs})"),
                spans=view.current("spans", f"run IN ({runs})"),
            ),
            **view.parameters(),
            forms=forms,
        )
        for row in rows:
            ref = to_span_ref(row)
            keys = [key for key, each in _decode(row[6] or "{}").items() if str(each) == value]
            if keys:
                found.setdefault((ref.run_id, ref.span_id), ref)
                if all(key.startswith("tool_call.") for key in keys):
                    callers.add((ref.run_id, ref.span_id))
            if len(found) >= limit:
                break
    # A model call has the ids of its tool calls as attributes.
    if len(callers) < len(found):
        found = {key: ref for key, ref in found.items() if key not in callers}
    return list(found.values())


_ATTRIBUTE: Final = {
    "spans": "SELECT r.run_id, x.span_id, r.id, x.number, x.type, x.name, x.attributes"
    " FROM {rows} x JOIN {runs} r ON r.id = x.run ORDER BY x.id DESC",
    "logs": "SELECT r.run_id, x.span_id, r.id, s.number, s.type,"
    " if(s.number > 0, s.name, r.name), x.attributes FROM {rows} x JOIN {runs} r ON r.id = x.run"
    " LEFT JOIN (SELECT * FROM {spans} WHERE (run, span_id) IN"
    " (SELECT run, coalesce(span_id, '') FROM {rows})) s"
    " ON s.run = x.run AND s.span_id = x.span_id ORDER BY x.id DESC",
}


def links_to(
    client: Client, view: View, run_id: str, span_id: str
) -> list[tuple[SpanRef, str | None]]:
    links = view.current("links", "target_span = {span_id:String}")
    spans = view.current("spans", f"run IN (SELECT run FROM {links})")
    rows = client.query(
        f"SELECT {SPAN_REF}, l.reason FROM {links} l"
        f" JOIN {view.current('runs', f'id IN (SELECT run FROM {links})')} r ON r.id = l.run"
        f" JOIN {spans} s ON s.run = l.run AND s.span_id = l.span_id"
        " WHERE coalesce(l.target_run, r.run_id) = {run_id:String} ORDER BY l.id LIMIT 50",
        **view.parameters(),
        run_id=run_id,
        span_id=span_id,
    )
    return [(to_span_ref(row), row[6]) for row in rows]


def find_last_good_run(client: Client, view: View, run_id: str) -> str | None:
    return _find_related(client, view, run_id, _LAST_GOOD, "name")


def find_previous_run(client: Client, view: View, run_id: str) -> str | None:
    return _find_related(client, view, run_id, _RUN_BEFORE, "conversation_id", "name")


_RELATED: Final = 100
"""Versions of earlier runs that are looked at before all."""


def _find_related(client: Client, view: View, run_id: str, sql: str, *columns: str) -> str | None:
    """Return the run that a query finds, with the same value in one of the columns.

    The query prefers the first of these columns, and then the newest run before this one. Only if
    none of the newest ones is found are all runs sorted.
    """
    one = view.current("runs", "run_id = {run_id:String}")
    for column in columns:
        # A run has a version with the values of its newest one, so no better run is omitted.
        newest = (
            f"SELECT id, started_ns FROM {view.prefix}runs WHERE {view.visible('runs')}"
            f" AND {column} IN (SELECT {column} FROM {one}) AND started_ns <="
            f" (SELECT max(started_ns) FROM {one})"
            f" ORDER BY started_ns DESC, id DESC LIMIT {_RELATED}"
        )
        source = f"(SELECT * FROM {view.current('runs', f'id IN (SELECT id FROM ({newest}))')}"
        source += f" WHERE started_ns >= (SELECT min(started_ns) FROM ({newest})))"
        rows = client.query(sql.format(runs=source, one=one), **view.parameters(), run_id=run_id)
        if rows:
            return str(rows[0][0])
    rows = client.query(
        sql.format(runs=view.current("runs"), one=one), **view.parameters(), run_id=run_id
    )
    return rows[0][0] if rows else None


_LAST_GOOD: Final = """
SELECT g.run_id FROM {runs} g CROSS JOIN {one} r
WHERE g.name = r.name AND g.id <> r.id AND g.tenant = r.tenant AND g.outcome = 'ok'
  AND g.implicit = r.implicit
ORDER BY g.started_ns > r.started_ns, g.started_ns DESC, g.id DESC LIMIT 1
"""
_RUN_BEFORE: Final = """
SELECT g.run_id FROM {runs} g CROSS JOIN {one} r
WHERE (coalesce(g.conversation_id = r.conversation_id, 0) OR coalesce(g.name = r.name, 0))
  AND g.id <> r.id AND g.tenant = r.tenant AND g.implicit = r.implicit
  AND (g.started_ns, g.id) < (r.started_ns, r.id)
ORDER BY coalesce(g.conversation_id = r.conversation_id, 0) DESC, g.started_ns DESC, g.id DESC
LIMIT 1
"""
_SPAN_BEFORE: Final = """
SELECT g.run_id, s.span_id FROM (
  SELECT g.* FROM {runs} g CROSS JOIN {one} r
  WHERE g.conversation_id = r.conversation_id AND g.started_ns < r.started_ns
    AND g.tenant = r.tenant) g
JOIN {spans} s ON s.run = g.id
WHERE s.type = {{type:String}} AND s.name = {{name:String}}
ORDER BY g.started_ns DESC, s.number DESC LIMIT 1
"""


def find_previous_span(
    client: Client, view: View, run_id: str, type: str, name: str
) -> tuple[str, str] | None:
    runs, one = view.current("runs"), view.current("runs", "run_id = {run_id:String}")
    same = (
        f"run IN (SELECT id FROM {runs} WHERE conversation_id IN"
        f" (SELECT conversation_id FROM {one}))"
    )
    rows = client.query(
        _SPAN_BEFORE.format(runs=runs, one=one, spans=view.current("spans", same)),
        **view.parameters(),
        run_id=run_id,
        type=type,
        name=name,
    )
    return (rows[0][0], rows[0][1]) if rows else None


def read_span_facts(
    client: Client, view: View, run_ids: Sequence[str], spans_max: int
) -> Iterator[SpanFacts]:
    known = find_rows(client, view, run_ids)
    runs = [(known[each][0], each) for each in run_ids if each in known]
    step = max(1, _FACTS_PER_QUERY // max(1, spans_max))
    for at in range(0, len(runs), step):
        part = dict(runs[at : at + step])
        source = view.current("spans", "run IN {rows:Array(Int64)}")
        rows = client.query(
            "SELECT run, type, name, component, status, attributes, output_body"
            f" FROM {source} ORDER BY indexOf({{rows:Array(Int64)}}, run), id"
            f" LIMIT {int(spans_max)} BY run",
            **view.parameters(),
            rows=list(part),
        )
        for row, span_type, name, component, status, text, body in rows:
            attributes = _decode(text) if text else {}
            yield SpanFacts(part[row], span_type, name, component, status, attributes, body)


def find_partial_runs(client: Client, view: View, run_ids: Sequence[str]) -> set[str]:
    known = find_rows(client, view, run_ids)
    names = {row: run_id for run_id, (row, _, _) in known.items()}
    rows = client.query(
        f"SELECT DISTINCT run FROM {view.current('spans', 'run IN {rows:Array(Int64)}')}"
        " WHERE parent_id IS NULL AND type = 'run'"
        " AND position(coalesce(attributes, ''), {mark:String}) > 0",
        **view.parameters(),
        rows=list(names),
        mark=f'"{PARTIAL}":',
    )
    return {names[row[0]] for row in rows}


def read_run_inputs_outputs(
    client: Client, view: View, run_ids: Sequence[str]
) -> dict[str, RunInputsOutputs]:
    """Return the bodies at both ends of each run."""
    known = find_rows(client, view, run_ids)
    runs = view.current("runs", "id IN {rows:Array(Int64)}")
    spans = view.current("spans", f"run IN (SELECT id FROM {runs} WHERE span_count <= {SPANS_MAX})")
    is_root = "s.type = 'run' AND s.parent_id IS NULL"
    rows = client.query(
        f"SELECT r.run_id, countIf({is_root}),"
        f" {_first('s.input_body, s.input_bytes', is_root)},"
        f" {_first('s.output_body, s.output_bytes', is_root)},"
        f" {_first('s.input_body, s.input_bytes', _HAS_INPUT.format('agent'))},"
        f" {_first('s.input_body, s.input_bytes', _HAS_INPUT.format('llm'))},"
        f" argMaxIf((s.output_body, s.output_bytes), s.id, {_HAS_OUTPUT})"
        f" FROM {spans} s JOIN {runs} r ON r.id = s.run GROUP BY r.run_id",
        **view.parameters(),
        rows=[row for row, _, _ in known.values()],
    )
    return {row[0]: RunInputsOutputs(*(_to_ref(pair) for pair in row[2:])) for row in rows}


_HAS_INPUT: Final = "s.type = '{}' AND s.input_body IS NOT NULL"
_HAS_OUTPUT: Final = "s.type = 'llm' AND s.output_body IS NOT NULL"


def _first(columns: str, condition: str) -> str:
    return f"argMinIf(({columns}), s.id, {condition})"


def _to_ref(pair: Sequence[int | None]) -> BodyRef | None:
    body, size_bytes = pair
    return BodyRef(body, size_bytes or 0) if body else None


def read_log(client: Client, view: View, row: int) -> LogInfo:
    """Return the log record of a row, which must exist."""
    writers = view.current("writers")
    rows = client.query(
        "SELECT l.span_id, w.writer, l.seq, l.time_ns, l.level, l.component, l.message,"
        " l.attributes, l.redacted, l.body, l.body_bytes, l.body_info"
        f" FROM {view.current('logs', 'id = {row:Int64}')} l JOIN {writers} w ON w.id = l.writer",
        **view.parameters(),
        row=row,
    )
    span_id, writer, seq, time_ns, level, component, message, attributes, redacted, *body = rows[0]
    return LogInfo(
        span_id,
        order_group(writer, span_id, seq),
        seq,
        time_ns,
        level,
        component,
        message,
        _decode(attributes) if attributes else {},
        _decode(redacted) if redacted else {},
        _to_body_ref(*body),
    )


def _to_body_ref(body: int | None, size_bytes: int | None, info: str | None) -> BodyRef | None:
    if size_bytes is None:
        return None
    note: Mapping[str, Any] = _decode(info) if info else {}
    if not note:
        return BodyRef(body, size_bytes)
    reason = note.get("lost") or f"truncated from {note['original_bytes']} bytes"
    return BodyRef(body, size_bytes, reason)


def read_debugging_hints(
    client: Client, view: View, run_ids: Sequence[str] | None, limit: int
) -> list[object]:
    runs = view.current("runs", "1" if run_ids is None else "run_id IN {ids:Array(String)}")
    logs = view.current("logs", "component = {component:String} AND level = 'debug'")
    rows = client.query(
        "SELECT if(JSONType(attributes, 'surface') = 'String',"
        " JSONExtractString(attributes, 'surface'), JSONExtractRaw(attributes, 'surface'))"
        f" FROM {logs} WHERE run IN (SELECT id FROM {runs})"
        " AND JSONHas(coalesce(attributes, ''), 'surface')"
        f" ORDER BY time_ns DESC, id DESC LIMIT {int(limit)}",
        **view.parameters(),
        component=OWN_COMPONENT,
        ids=list(run_ids or ()),
    )
    return [row[0] for row in rows]
