"""The SQL that lists and finds runs.

The conditions are those of the SQLite engine (store/sqlite/read/filter_sql.py). `R` is the newest
version of each run, which a subquery computes once.

To find the newest version takes a sort. A list that starts with the newest runs therefore sorts
those of a window of time only, and takes larger windows until it has enough runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from vestige.limits import SUM_MAX
from vestige.record.run import RunInfo
from vestige.record.types import MODEL_CALL_TYPES, OWN_COMPONENT
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import KnownRun, View
from vestige.store.protocol import ConversationInfo, RunFilter, RunPage, RunSort, Term
from vestige.store.run_row import to_run_info

RUNS_SEARCHED_MAX: Final = 20_000
ROWS_SEARCHED_MAX: Final = 2_000_000
"""Runs, and their spans and logs, that one search reads."""

WINDOW_ROWS: Final = 400
"""Versions of runs in the first window of a list."""
_WINDOW_GROWTH: Final = 16

COLUMNS: Final = (
    "run_id, id, name, outcome, started_ns, ended_ns, duration_ns, last_ns, span_count, log_count,"
    " error_count, conversation_id, component, input_tokens, output_tokens, pinned, implicit,"
    " process_run, missing_count"
)
_WITH_STATE: Final = f"{COLUMNS}, changed"
_KNOWN_MAX: Final = 10_000
_NUMBERS: Final = {
    "started_ns": "r.started_ns",
    "tokens": "(r.input_tokens + r.output_tokens)",
    "duration": "coalesce(r.duration_ns, r.last_ns - r.started_ns)",
    "spans": "r.span_count",
    "errors": "r.error_count",
    "logs": "r.log_count",
}
SORTS: Final[dict[RunSort, str]] = {
    "started": "r.started_ns",
    "duration": _NUMBERS["duration"],
    "tokens": _NUMBERS["tokens"],
    "spans": _NUMBERS["spans"],
    "errors": _NUMBERS["errors"],
    "name": "lower(coalesce(r.name, ''))",
    "outcome": "r.outcome",
}
_IS_OF_PROCESS: Final = "implicit = 1 OR component = 'vestige'"
FAILED: Final = "r.outcome NOT IN ('ok', 'running', 'unknown')"
IS_MODEL_CALL: Final = f"type IN ({', '.join(map(repr, MODEL_CALL_TYPES))})"


class _Conditions:
    """SQL conditions on runs `r`, and their parameters."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.parts: list[str] = []
        self.values: dict[str, Any] = {}

    def bind(self, value: Any, kind: str) -> str:
        """Add a parameter. Return the SQL that refers to it."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"{{{name}:{kind}}}"

    def add(self, sql: str) -> None:
        self.parts.append(sql)

    def sql(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts) or "1"


def search_runs(client: Client, view: View, run_filter: RunFilter) -> RunPage:
    """Return matching runs, newest first or as the filter sorts them."""
    conditions = _build_conditions(view, run_filter)
    slow = [term for term in run_filter.terms if not _is_cheap(term)]
    if run_filter.like is not None:
        slow.append(Term("text", ":", run_filter.like))
    bound = _find_bound(client, view, conditions) if slow else None
    if bound is not None:
        started = conditions.bind(bound[0], "Int64")
        row = conditions.bind(bound[1], "Int64")
        conditions.add(f"(r.started_ns, r.id) >= ({started}, {row})")
    if slow:
        scope = f"(SELECT id FROM {view.current('runs')} r WHERE {conditions.sql()})"
        for term in slow:
            conditions.add(_build_slow(conditions, term, scope))
    source = f"SELECT * FROM {view.current('runs')} r WHERE {conditions.sql()}"
    column, direction = SORTS[run_filter.sort], "ASC" if run_filter.ascending else "DESC"
    if run_filter.newest_of_conversation:
        # `after` applies to the list, and not to what is the newest of a conversation.
        everything = _build_conditions(view, replace(run_filter, after=None))
        for term in slow:
            everything.add(
                _build_slow(everything, term, f"(SELECT id FROM {view.current('runs')})")
            )
        renamed = {f"n{name}": value for name, value in everything.values.items()}
        text = everything.sql().replace("{p", "{np")
        conditions.values |= renamed
        newest = (
            f"SELECT id FROM {view.current('runs')} r WHERE {text} ORDER BY started_ns DESC,"
            " id DESC LIMIT 1 BY tenant, coalesce(conversation_id, concat('run ', toString(id)))"
        )
        source = f"{source} AND r.id IN ({newest})"
    limit = SUM_MAX if run_filter.limit is None else min(run_filter.limit, SUM_MAX)
    runs = _find_newest(client, view, run_filter) if _can_window(run_filter, slow) else None
    if runs is None:
        rows = client.query(
            f"SELECT {_WITH_STATE} FROM ({source}) r"
            f" ORDER BY {column} {direction}, r.id {direction} LIMIT {int(limit)}",
            **view.parameters(),
            **conditions.values,
        )
        runs = _to_runs(view, rows)
    if bound is None:
        return RunPage(runs)
    newest_first = run_filter.sort == "started" and not run_filter.ascending
    return RunPage(runs, bound[2], f"r{bound[1]}" if newest_first else None)


def _can_window(run_filter: RunFilter, slow: Sequence[Term]) -> bool:
    """Return whether the list starts with the newest runs, and ends soon."""
    return (
        run_filter.sort == "started"
        and not run_filter.ascending
        and not run_filter.newest_of_conversation
        and not slow
        and run_filter.limit is not None
        and run_filter.limit <= WINDOW_ROWS * _WINDOW_GROWTH
    )


def _find_newest(client: Client, view: View, run_filter: RunFilter) -> list[RunInfo] | None:
    """Return the newest runs that match, or None if only a search of all runs finds enough."""
    limit = int(run_filter.limit or 0)
    rows_max, candidates_max = max(WINDOW_ROWS, 2 * limit), limit
    if not run_filter.with_implicit:
        candidates_max = 3 * limit  # about half of them may be runs of processes
    upper = _find_upper(client, view, run_filter)
    before = "" if upper is None else " AND started_ns <= {upper:Int64}"
    conditions = _build_conditions(view, replace(run_filter, with_implicit=True))
    for _ in range(2):
        visible = f"FROM {view.prefix}runs WHERE {view.visible('runs')}{before}"
        oldest = f"SELECT started_ns {visible} ORDER BY started_ns DESC LIMIT 1 OFFSET {rows_max}"
        # The newest version of a run that started in the window is in it, so no run is omitted.
        window = f"id IN (SELECT id {visible} AND started_ns >= window_start)"
        rows = client.query(
            f"WITH ifNull(({oldest}), {_EARLIEST_NS}) AS window_start"
            f" SELECT {_WITH_STATE}, window_start FROM {view.current('runs', window)} r"
            f" WHERE {conditions.sql()} AND r.started_ns >= window_start"
            f" ORDER BY r.started_ns DESC, r.id DESC LIMIT {candidates_max}",
            **view.parameters(),
            **conditions.values,
            upper=upper or 0,
        )
        runs = _to_runs(view, [row[:-1] for row in rows])
        if not run_filter.with_implicit:
            runs = _without_hidden(client, view, runs)
        has_all = bool(rows) and rows[0][-1] == _EARLIEST_NS and len(rows) < candidates_max
        if len(runs) >= limit or has_all:
            return runs[:limit]
        rows_max *= _WINDOW_GROWTH
        candidates_max *= _WINDOW_GROWTH
    return None


_EARLIEST_NS: Final = -(2**63)


def _without_hidden(client: Client, view: View, runs: list[RunInfo]) -> list[RunInfo]:
    """Omit runs of processes that are not worth showing, which it takes several joins to judge."""
    of_process = [run for run in runs if run.implicit or run.component == OWN_COMPONENT]
    if not of_process:
        return runs
    ids = "{judged:Array(Int64)}"
    rows = client.query(
        f"SELECT r.id FROM {view.current('runs', f'id IN {ids}')} r"
        f" WHERE NOT ({is_worth_showing(view, ids)})",
        **view.parameters(),
        judged=[int(run.short_id[1:]) for run in of_process],
    )
    hidden = {f"r{row}" for (row,) in rows}
    return [run for run in runs if run.short_id not in hidden]


def _find_upper(client: Client, view: View, run_filter: RunFilter) -> int | None:
    """Return the latest start that the filter allows, if it has one."""
    bounds = [] if run_filter.before_ns is None else [_clamp(run_filter.before_ns)]
    if run_filter.after is not None:
        source = view.current("runs", "id = {row:Int64}")
        rows = client.query(
            f"SELECT started_ns FROM {source}",
            **view.parameters(),
            row=_clamp(int(run_filter.after[1:])),
        )
        bounds += [row[0] for row in rows]
    return min(bounds, default=None)


def find_runs(client: Client, view: View, id_or_prefix: str) -> list[RunInfo]:
    """Return runs by id, short id or prefix of an id."""
    text = id_or_prefix.strip().lower()
    value: int | str = text
    if text.startswith("r") and text[1:].isdecimal():
        where, value = "id = {key:Int64}", int(text[1:][:18])
    elif len(text) == 36:
        where = "run_id = {key:String}"  # a complete id, which the index finds
    else:
        where = "startsWith(run_id, {key:String})"
    rows = client.query(
        f"SELECT {_WITH_STATE} FROM {view.current('runs', where)} ORDER BY id LIMIT 50",
        **view.parameters(),
        key=value,
    )
    found = _to_runs(view, rows)
    return [run for run in found if run.id == text] or found


def find_row(client: Client, view: View, run_id: str) -> KnownRun | None:
    """Return the row id of a run, the last commit that added records, and whether it is pinned."""
    return find_rows(client, view, [run_id]).get(run_id)


def find_rows(client: Client, view: View, run_ids: Iterable[str]) -> dict[str, KnownRun]:
    """Return the same for those of the runs that exist."""
    ids = list(dict.fromkeys(run_ids))
    missing = [each for each in ids if each not in view.known]
    for at in range(0, len(missing), _IDS_PER_QUERY):
        source = view.current("runs", "run_id IN {ids:Array(String)}")
        rows = client.query(
            f"SELECT run_id, id, changed, pinned FROM {source}",
            **view.parameters(),
            ids=missing[at : at + _IDS_PER_QUERY],
        )
        view.known.update((row[0], (row[1], row[2], row[3])) for row in rows)
    found = {each: view.known[each] for each in ids if each in view.known}
    if len(view.known) > _KNOWN_MAX:
        view.known.clear()
    return found


_IDS_PER_QUERY: Final = 1_000


def _to_runs(view: View, rows: Sequence[Sequence[Any]]) -> list[RunInfo]:
    """Return runs, and remember where they are."""
    runs = [to_run_info(row[:-1]) for row in rows]
    if len(view.known) + len(runs) <= _KNOWN_MAX:
        for row, run in zip(rows, runs, strict=True):
            view.known[run.id] = row[1], row[-1], int(run.pinned)
    return runs


def conversations(
    client: Client, view: View, run_ids: Sequence[str]
) -> dict[str, ConversationInfo]:
    runs = view.current("runs")
    rows = client.query(
        f"SELECT n.run_id, any(r.conversation_id), count(), countIf({FAILED}), min(r.started_ns),"
        " sum(r.input_tokens), sum(r.output_tokens)"
        f" FROM {runs} n JOIN {runs} r"
        " ON r.conversation_id = n.conversation_id AND r.tenant = n.tenant"
        " WHERE n.run_id IN {ids:Array(String)} GROUP BY n.run_id",
        **view.parameters(),
        ids=list(run_ids),
    )
    return {row[0]: ConversationInfo(*row[1:]) for row in rows}


def is_worth_showing(view: View, window: str | None = None) -> str:
    """Return the condition for runs of a process: they have content, or an outcome of their own.

    `window`: the SQL of a set of ids, if only these runs are judged.
    """
    named = "process_run IS NOT NULL"
    own_runs = "component = 'vestige'"
    if window is not None:
        named += (
            f" AND process_run IN (SELECT run_id FROM {view.prefix}runs WHERE"
            f" {view.visible('runs')} AND id IN {window} AND ({_IS_OF_PROCESS}))"
        )
        own_runs += f" AND id IN {window}"
    process_runs = f"SELECT process_run, outcome FROM {_newest_of(view, named)}"
    has_same = (
        "(r.run_id, r.outcome) IN"
        f" (SELECT assumeNotNull(process_run), outcome FROM ({process_runs}))"
    )
    has_any = f"r.run_id IN (SELECT assumeNotNull(process_run) FROM ({process_runs}))"
    own = (
        f"r.id IN (SELECT run FROM spans WHERE {view.visible('spans')}"
        f" AND type NOT IN ('run', 'process') AND run IN (SELECT id FROM"
        f" {_newest_of(view, own_runs)}))"
    )
    return (
        "NOT (r.implicit = 1 AND r.own_count = 0"
        f" AND (r.outcome IN ('ok', 'running') OR {has_same})"
        f" OR coalesce(r.component, '') = 'vestige' AND (r.outcome IN ('ok', 'running')"
        f" AND {has_any} OR {has_same}) AND NOT {own})"
    )


def _newest_of(view: View, where: str) -> str:
    """Return a subquery with the newest versions of runs to which a condition applies.

    Only runs with a version to which it applies are sorted.
    """
    ids = f"SELECT id FROM {view.prefix}runs WHERE {view.visible('runs')} AND {where}"
    return f"(SELECT * FROM {view.current('runs', f'id IN ({ids})')} WHERE {where})"


def _build_conditions(view: View, run_filter: RunFilter) -> _Conditions:
    found = _Conditions(view)
    if not run_filter.with_implicit:
        found.add(is_worth_showing(view))
    if run_filter.failed:
        found.add(FAILED)
    if run_filter.since_ns is not None:
        found.add(f"r.started_ns >= {found.bind(_clamp(run_filter.since_ns), 'Int64')}")
    if run_filter.before_ns is not None:
        found.add(f"r.started_ns < {found.bind(_clamp(run_filter.before_ns), 'Int64')}")
    if run_filter.after is not None:
        column, later = SORTS[run_filter.sort], ">" if run_filter.ascending else "<"
        row = found.bind(_clamp(int(run_filter.after[1:])), "Int64")
        found.add(
            f"({column}, r.id) {later} (SELECT {column}, r.id FROM"
            f" {view.current('runs', f'id = {row}')} r)"
        )
    if run_filter.name is not None:
        found.add(f"r.name ILIKE {found.bind(_pattern(run_filter.name), 'String')}")
    if run_filter.tenant_of is not None:
        run_id = found.bind(run_filter.tenant_of, "String")
        source = view.current("runs", f"run_id = {run_id}")
        found.add(f"r.tenant IN (SELECT tenant FROM {source})")
    if run_filter.of_process is not None:
        run_id = found.bind(run_filter.of_process, "String")
        found.add(f"r.run_id = {run_id} OR r.process_run = {run_id}")
    if run_filter.name_is is not None:
        found.add(f"r.name = {found.bind(run_filter.name_is, 'String')}")
    if run_filter.outcome is not None:
        found.add(f"r.outcome = {found.bind(run_filter.outcome, 'String')}")
    if run_filter.conversation_id is not None:
        found.add(f"r.conversation_id = {found.bind(run_filter.conversation_id, 'String')}")
    for term in filter(_is_cheap, run_filter.terms):
        sql = _build_cheap(found, term)
        found.add(f"NOT ({sql})" if term.negated else sql)
    return found


def _is_cheap(term: Term) -> bool:
    return term.key not in ("tool", "model", "check", "text", "type")


def _build_cheap(found: _Conditions, term: Term) -> str:
    key, value, view = term.key, term.value, found.view
    if key in _NUMBERS:
        assert term.op in (">", "<", ">=", "<=", "=")
        return f"{_NUMBERS[key]} {term.op} {found.bind(value, 'Float64')}"
    if key == "is":
        if value == "failed":
            return FAILED
        if value == "pinned":
            return "r.pinned = 1"
        return f"r.outcome = {found.bind(value, 'String')}"
    if key == "has":
        notes = view.current("notes")
        findings = view.current_findings()
        return {
            "finding": f"r.id IN (SELECT run FROM {findings} WHERE finding IS NOT NULL)",
            "conversation": "r.conversation_id IS NOT NULL",
            "error": "r.error_count > 0",
            "cost": "r.input_tokens > 0 OR r.output_tokens > 0",
            "note": f"r.id IN (SELECT run FROM {notes})",
        }[value]
    if key == "conversation":
        return f"coalesce(r.conversation_id, '') = {found.bind(value, 'String')}"
    if key == "run":
        return _match_ids(found, value)
    if key == "words":
        return f"r.run_id IN {found.bind(list(term.also), 'Array(String)')}"
    if key == "tag":
        tag = found.bind(rf"(?i)#{value}(?:[^\pL\pN_-]|$)", "String")
        return f"r.id IN (SELECT run FROM {view.current('notes')} WHERE match(text, {tag}))"
    pattern = found.bind(_pattern(value), "String")
    if key == "note":
        return f"r.id IN (SELECT run FROM {view.current('notes')} WHERE text ILIKE {pattern})"
    sql = f"coalesce(r.{'name' if key == 'name' else 'component'}, '') ILIKE {pattern}"
    return _with_also(found, sql, term)


def _build_slow(found: _Conditions, term: Term, scope: str) -> str:
    """Return a condition that searches the rows of the runs in `scope`."""
    view = found.view
    spans = f"SELECT run FROM {view.current('spans', f'run IN {scope}')}"
    if term.key == "type":
        sql = f"r.id IN ({spans} WHERE type = {found.bind(term.value, 'String')})"
    else:
        pattern = found.bind(_pattern(term.value), "String")
        if term.key == "tool":
            sql = f"r.id IN ({spans} WHERE type = 'tool' AND name ILIKE {pattern})"
        elif term.key == "model":
            sql = (
                f"r.id IN ({spans} WHERE {IS_MODEL_CALL}"
                f" AND JSONExtractString(coalesce(attributes, ''), 'model') ILIKE {pattern})"
            )
        elif term.key == "check":
            findings = view.current_findings(f"run IN {scope}")
            sql = (
                f"r.id IN (SELECT run FROM {findings} WHERE finding IS NOT NULL AND"
                f" (check_name ILIKE {pattern}"
                f" OR JSONExtractString(assumeNotNull(finding), 'kind') ILIKE {pattern}))"
            )
        else:
            logs = f"SELECT run FROM {view.current('logs', f'run IN {scope}')}"
            sql = (
                f"(coalesce(r.name, '') ILIKE {pattern}"
                f" OR r.id IN ({spans} WHERE name ILIKE {pattern}"
                f" OR coalesce(attributes, '') ILIKE {pattern})"
                f" OR r.id IN ({logs} WHERE message ILIKE {pattern}"
                f" OR coalesce(attributes, '') ILIKE {pattern}))"
            )
        sql = _with_also(found, sql, term)
    return f"NOT ({sql})" if term.negated else sql


def _match_ids(found: _Conditions, ids: Sequence[str]) -> str:
    tests = []
    for text in ids:
        if text.startswith("r") and text[1:].isdecimal():
            tests.append(f"r.id = {found.bind(_clamp(int(text[1:][:18])), 'Int64')}")
        else:
            tests.append(f"startsWith(r.run_id, {found.bind(text, 'String')})")
    return " OR ".join(tests)


def _with_also(found: _Conditions, sql: str, term: Term) -> str:
    if not term.also:
        return sql
    return f"({sql} OR r.run_id IN {found.bind(list(term.also), 'Array(String)')})"


def _find_bound(client: Client, view: View, conditions: _Conditions) -> tuple[int, int, int] | None:
    """Return the last run to search: (started_ns, id, number of runs). None: search all runs."""
    rows = client.query(
        f"SELECT started_ns, id, span_count + log_count FROM {view.current('runs')} r"
        f" WHERE {conditions.sql()} ORDER BY started_ns DESC, id DESC"
        f" LIMIT {RUNS_SEARCHED_MAX + 1}",
        **view.parameters(),
        **conditions.values,
    )
    before = 0
    for position, (_, _, weight) in enumerate(rows, 1):
        if position > RUNS_SEARCHED_MAX or (before >= ROWS_SEARCHED_MAX and position > 1):
            last = rows[position - 2]
            return last[0], last[1], position - 1
        before += weight
    return None


def _pattern(text: str) -> str:
    """Return a LIKE pattern for values that contain a text."""
    text = str(text).encode(errors="replace").decode()
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _clamp(number: int) -> int:
    return max(-(2**63), min(number, 2**63 - 1))
