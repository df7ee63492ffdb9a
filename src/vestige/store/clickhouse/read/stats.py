"""The SQL of sums: rollups, runs by hour, model calls and tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from vestige.record.run import NOT_FAILED
from vestige.record.types import OWN_COMPONENT
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read.run_list import IS_MODEL_CALL, find_rows, is_worth_showing
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.histogram import bucket
from vestige.store.interface.stats import USAGE_KEYS, LatestCall, ModelSum, RecordedSum, Sum

HOUR_NS: Final = 3_600 * 10**9
RUNS_MAX: Final = 200_000
SPANS_MAX: Final = 2_000_000
"""Runs with more spans in total are not searched for model calls, so their cost is unknown."""

TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")

_GROUPS: Final[dict[str, tuple[str, str]]] = {
    # SQL of the group, and of the condition on rows
    "name": ("concat(type, ' ', name)", "type <> 'process'"),
    "model": ("toString(model)", IS_MODEL_CALL),
    "tool": ("name", "type = 'tool'"),
    "component": ("toString(component)", "1"),
    "type": ("toString(type)", "1"),
    "day": ("toString(day)", "type = 'run'"),
}
_TOKENS_OF_SPANS: Final = ", ".join(
    f"sum(JSONExtractInt(coalesce(s.attributes, ''), '{name}'))" for name in TOKENS
)
_OUTER_HAS_USAGE: Final = " OR ".join(
    f"JSONHas(coalesce(o.attributes, ''), '{name}')" for name in USAGE_KEYS
)
_MODEL: Final = "JSONExtractString(coalesce(s.attributes, ''), 'model')"


def sum_rollups(client: Client, view: View, by: str, since_day: str | None) -> list[Sum]:
    column, where = _GROUPS[by]
    rows = client.query(
        f"SELECT {column} AS k, greatest(sum(count), 0) AS n, greatest(sum(errors), 0),"
        " greatest(sum(duration_ns), 0), sumMap(buckets, times)"
        f" FROM rollups WHERE {view.visible('rollups')} AND {where} AND day >= {{since:Date}}"
        " AND component <> {hidden:String} GROUP BY k HAVING n > 0 ORDER BY k",
        **view.parameters(),
        since=since_day or "1970-01-01",
        hidden="" if by in ("component", "type") else OWN_COMPONENT,
    )
    found = {}
    for key, count, errors, duration_ns, (buckets, times) in rows:
        total = found[key] = Sum(key, count, errors, duration_ns)
        for number, each in zip(buckets, times, strict=True):
            if each > 0:
                total.histogram[number] += each
    if by == "day":
        _add_process_runs(client, view, since_day or "", found)
    for part in sum_models(client, view, by, since_day):
        total = found.setdefault(part.key, Sum(part.key))
        total.input_tokens += part.input_tokens
        total.output_tokens += part.output_tokens
        total.cache_read_tokens += part.cache_read_tokens
        total.cache_write_tokens += part.cache_write_tokens
    return [found[key] for key in sorted(found)]


def _add_process_runs(client: Client, view: View, since_day: str, sums: dict[str, Sum]) -> None:
    """Add the runs of processes that have content, which rollups cannot distinguish."""
    ids = (
        f"SELECT id FROM {view.prefix}runs WHERE {view.visible('runs')}"
        " AND (implicit = 1 OR component = {own:String})"
    )
    rows = client.query(
        "SELECT toString(toDate(fromUnixTimestamp64Nano(r.started_ns, 'UTC'))) AS day, r.outcome,"
        f" r.duration_ns FROM {view.current('runs', f'id IN ({ids})')} r"
        " WHERE (r.implicit = 1 OR r.component = {own:String})"
        f" AND {is_worth_showing(view)} AND day >= {{since:String}}",
        **view.parameters(),
        own=OWN_COMPONENT,
        since=since_day,
    )
    for day, outcome, duration_ns in rows:
        _add_run(sums.setdefault(day, Sum(day)), outcome, duration_ns)


def _add_run(total: Sum, outcome: str, duration_ns: int | None) -> None:
    total.count += 1
    total.errors += outcome not in NOT_FAILED
    if duration_ns is not None:
        total.duration_ns += duration_ns
        total.histogram[bucket(duration_ns)] += 1


def sum_models(client: Client, view: View, by: str, since_day: str | None) -> list[ModelSum]:
    """Sum tokens by group and model. Only model calls count, because outer spans repeat them."""
    if by == "tool":
        return []
    tokens = ", ".join(f"greatest(sum({name}), 0)" for name in TOKENS)
    rows = client.query(
        f"SELECT {_GROUPS[by][0]} AS k, toString(model) AS m, greatest(sum(count), 0) AS n,"
        f" {tokens} FROM rollups WHERE {view.visible('rollups')} AND {IS_MODEL_CALL}"
        " AND day >= {since:Date} GROUP BY k, m HAVING n > 0 ORDER BY k, m",
        **view.parameters(),
        since=since_day or "1970-01-01",
    )
    return [ModelSum(*row) for row in rows]


def find_first_day(client: Client, view: View) -> str | None:
    rows = client.query(
        "SELECT toString(min(day)), count() FROM rollups WHERE " + view.visible("rollups"),
        **view.parameters(),
    )
    return rows[0][0] if rows[0][1] else None


def sum_hours(client: Client, view: View, since_ns: int) -> dict[int, Sum]:
    """Sum runs by the hour since the epoch."""
    ids = (
        f"SELECT id FROM {view.prefix}runs WHERE {view.visible('runs')}"
        " AND started_ns >= {since:Int64}"
    )
    rows = client.query(
        "SELECT r.started_ns, r.outcome, r.duration_ns, r.input_tokens, r.output_tokens"
        f" FROM {view.current('runs', f'id IN ({ids})')} r WHERE r.started_ns >= {{since:Int64}}"
        f" AND {is_worth_showing(view, f'({ids})')} ORDER BY r.started_ns DESC LIMIT {RUNS_MAX}",
        **view.parameters(),
        since=since_ns,
    )
    sums: dict[int, Sum] = {}
    for started_ns, outcome, duration_ns, input_tokens, output_tokens in rows:
        hour = started_ns // HOUR_NS
        total = sums.setdefault(hour, Sum(str(hour)))
        _add_run(total, outcome, duration_ns)
        total.input_tokens += input_tokens
        total.output_tokens += output_tokens
    return sums


def _calls(view: View, runs: str) -> str:
    """Return a subquery with the model calls of runs that are not inside another call."""
    has_tokens = f"SELECT id FROM {runs} WHERE input_tokens > 0 OR output_tokens > 0"
    spans = view.current("spans", f"run IN ({has_tokens})")
    return (
        f"(SELECT s.* FROM {spans} s LEFT JOIN {spans} o"
        " ON o.run = s.run AND o.span_id = s.parent_id AND o.type = s.type"
        f" WHERE s.{IS_MODEL_CALL} AND NOT ({_OUTER_HAS_USAGE}))"
    )


def sum_hour_models(client: Client, view: View, since_ns: int) -> list[ModelSum] | None:
    """Sum model calls by hour and model. Return None if there are too many spans."""
    runs = f"(SELECT * FROM {view.current('runs')} WHERE started_ns >= {{since:Int64}})"
    parameters = {**view.parameters(), "since": since_ns}
    if client.query(f"SELECT sum(span_count) FROM {runs}", **parameters)[0][0] > SPANS_MAX:
        return None
    rows = client.query(
        f"SELECT intDiv(r.started_ns, {HOUR_NS}) AS hour, {_MODEL} AS model, count(),"
        f" {_TOKENS_OF_SPANS} FROM {_calls(view, runs)} s JOIN {runs} r ON r.id = s.run"
        " GROUP BY hour, model ORDER BY hour, model",
        **parameters,
    )
    return [ModelSum(str(hour), str(model), count, *tokens) for hour, model, count, *tokens in rows]


def sum_model_calls(client: Client, view: View, run_ids: Sequence[str]) -> list[RecordedSum]:
    known = find_rows(client, view, run_ids)
    if not known:
        return []
    runs = view.current("runs", "id IN {rows:Array(Int64)}")
    has_cost = "JSONHas(coalesce(s.attributes, ''), 'cost_usd')"
    rows = client.query(
        f"SELECT r.run_id, {_MODEL} AS model, count(), {_TOKENS_OF_SPANS},"
        " sum(JSONExtractFloat(coalesce(s.attributes, ''), 'cost_usd')),"
        f" {has_cost} AS recorded FROM {_calls(view, runs)} s JOIN {runs} r ON r.id = s.run"
        " WHERE s.attributes IS NOT NULL GROUP BY r.run_id, model, recorded"
        " ORDER BY r.run_id, model, recorded DESC",
        **view.parameters(),
        rows=[row for row, _, _ in known.values()],
    )
    return [
        RecordedSum(ModelSum(run_id, model, count, *tokens), float(cost) if recorded else None)
        for run_id, model, count, *tokens, cost, recorded in rows
    ]


def read_latest_calls(
    client: Client, view: View, since_ns: int | None, runs_max: int
) -> list[LatestCall]:
    """Return the latest runs with model calls, newest first, and fewer if they are very long."""
    newest = client.query(
        f"SELECT id, run_id, outcome, span_count FROM {view.current('runs')}"
        " WHERE started_ns >= {since:Int64} AND own_count > 0"
        f" ORDER BY started_ns DESC, id DESC LIMIT {int(runs_max)}",
        **view.parameters(),
        since=since_ns or 0,
    )
    chosen, before = [], 0
    for row in newest:
        if before >= SPANS_MAX:
            break
        chosen.append(row)
        before += row[3]
    calls: dict[int, Sequence[Any]] = {}
    for at in range(0, len(chosen), 1_000):
        source = view.current("spans", "run IN {runs:Array(Int64)}")
        rows = client.query(
            "SELECT run, count(), argMaxIf((input_body, input_bytes), id, input_body IS NOT NULL)"
            f" FROM {source} WHERE type = 'llm' GROUP BY run",
            **view.parameters(),
            runs=[row[0] for row in chosen[at : at + 1_000]],
        )
        calls |= {row[0]: row for row in rows}
    return [
        LatestCall(run_id, outcome, calls[row][1], calls[row][2][0] or None, calls[row][2][1] or 0)
        for row, run_id, outcome, _ in chosen
        if row in calls
    ]


def count_tool_calls(
    client: Client, view: View, run_ids: Iterable[str]
) -> dict[str, tuple[int, int]]:
    runs = view.current("runs", "run_id IN {ids:Array(String)}")
    spans = view.current("spans", f"run IN (SELECT id FROM {runs})")
    rows = client.query(
        f"SELECT name, count(), countIf(status = 'ok') FROM {spans} WHERE type = 'tool'"
        " GROUP BY name ORDER BY name",
        **view.parameters(),
        ids=list(run_ids),
    )
    return {name: (count, ok) for name, count, ok in rows}


def read_prompt_assemblies(
    client: Client, view: View, run_ids: Iterable[str], limit: int
) -> list[int]:
    runs = view.current("runs", "run_id IN {ids:Array(String)}")
    spans = view.current("spans", f"run IN (SELECT id FROM {runs})")
    rows = client.query(
        f"SELECT output_body FROM {spans} WHERE type = 'prompt.assembly'"
        f" AND output_body IS NOT NULL ORDER BY id DESC LIMIT {int(limit)}",
        **view.parameters(),
        ids=list(run_ids),
    )
    return [row[0] for row in rows]


def read_responses(
    client: Client, view: View, run_ids: Iterable[str], limit: int, size_max: int
) -> list[int]:
    """Return the bodies of model responses; a client's span around a call is not counted."""
    runs = view.current("runs", "run_id IN {ids:Array(String)}")
    spans = view.current("spans", f"run IN (SELECT id FROM {runs})")
    rows = client.query(
        f"SELECT s.output_body FROM {spans} s LEFT JOIN {spans} p"
        " ON p.run = s.run AND p.span_id = s.parent_id"
        " WHERE s.type = 'llm' AND s.output_body IS NOT NULL AND s.output_bytes <= {size:Int64}"
        " AND (p.id = 0 OR p.type <> 'llm' OR p.output_body IS NULL)"
        f" ORDER BY s.id DESC LIMIT {int(limit)}",
        **view.parameters(),
        ids=list(run_ids),
        size=size_max,
    )
    return [row[0] for row in rows]
