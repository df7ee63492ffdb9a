"""The changes of a store since a cursor: new spans, ends of older spans, and logs.

The order is that of the row ids, which one commit after the other assigns. So a cursor has the
same form and meaning as that of the SQLite engine (store/sqlite/read/change_feed.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read.run_list import COLUMNS
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.interface.changes import Changes, LogChange, SpanChange
from vestige.store.run_row import to_run_info
from vestige.store.sqlite.read.change_feed import FeedPosition

_SPAN = (
    "s.run, r.run_id, s.number, s.span_id, s.parent_id, s.type, s.name, s.component, s.status,"
    " s.started_ns, s.duration_ns"
)


def read_cursor(view: View) -> str:
    """Return the current end of the feed."""
    counters = view.counters
    return str(FeedPosition(counters["spans"], counters["closes"], counters["logs"]))


def read_changes(
    client: Client, view: View, cursor: str, run_id: str | None, limit: int
) -> Changes:
    after = FeedPosition.parse(cursor)
    now = FeedPosition.parse(read_cursor(view))
    if after.span > now.span or after.close > now.close or after.log > now.log:
        return Changes([], [], [], str(now), more=False, lost=True)
    parameters: dict[str, Any] = {
        **view.parameters(),
        "run_id": run_id or "",
        "span": after.span,
        "close": after.close,
        "log": after.log,
    }
    only = "1" if run_id is None else "run_id = {run_id:String}"
    runs = view.current("runs", only)
    in_runs = "1" if run_id is None else f"run IN (SELECT id FROM {runs})"
    bound = f" LIMIT {int(limit)}"

    def read(sql: str) -> list[Any]:
        return list(client.query(sql + bound, **parameters))

    new = after.span < now.span and read(
        f"SELECT s.id, {_SPAN} FROM"
        f" {view.current('spans', f'id > {{span:Int64}} AND {in_runs}')} s"
        f" JOIN {runs} r ON r.id = s.run ORDER BY s.id"
    )
    closes = f"id > {{close:Int64}} AND {in_runs}"
    ended = after.close < now.close and read(
        f"SELECT c.id, {_SPAN} FROM {view.current('closes', closes)} c"
        f" JOIN {view.current('spans', _ended_spans(view, closes))} s ON s.id = c.span"
        f" JOIN {runs} r ON r.id = s.run ORDER BY c.id"
    )
    new_logs = after.log < now.log and read(
        "SELECT s.id, s.run, r.run_id, s.span_id, s.time_ns, s.level, s.component, s.message FROM"
        f" {view.current('logs', f'id > {{log:Int64}} AND {in_runs}')} s"
        f" JOIN {runs} r ON r.id = s.run ORDER BY s.id"
    )
    position = after
    spans: list[SpanChange] = []
    logs: list[LogChange] = []
    for row_id, *row in new or ():
        position = replace(position, span=row_id)
        spans.append(SpanChange(str(position), *row))
    if len(new or ()) < limit:
        position = replace(position, span=now.span)
    for row_id, *row in ended or ():
        position = replace(position, close=row_id)
        spans.append(SpanChange(str(position), *row))
    if len(ended or ()) < limit:
        position = replace(position, close=now.close)
    for row_id, *row in new_logs or ():
        position = replace(position, log=row_id)
        logs.append(LogChange(str(position), *row))
    if len(new_logs or ()) < limit:
        position = replace(position, log=now.log)
    changed = sorted({span.run_id for span in spans} | {log.run_id for log in logs})
    infos = []
    if changed:
        source = view.current("runs", "run_id IN {ids:Array(String)}")
        rows = client.query(
            f"SELECT {COLUMNS} FROM {source} ORDER BY run_id", **view.parameters(), ids=changed
        )
        infos = [to_run_info(row) for row in rows]
    more = limit in (len(new or ()), len(ended or ()), len(new_logs or ()))
    return Changes(spans, logs, infos, str(position), more)


def _ended_spans(view: View, where: str) -> str:
    closes = f"SELECT run, span FROM closes WHERE {view.visible('closes')} AND {where}"
    return f"(run, id) IN ({closes})"
