"""Run a user's SQL query read-only, with limits of time and size.

The file is opened read-only, an authorizer permits only reading, and a progress handler checks
the deadline every few hundred steps.

A function call is one step, which cannot be interrupted. Functions that read their arguments
once are listed here as quick. A query that calls another one (`LIKE` of two long texts may take
hours) runs in a process that can be killed (isolated_query.py).
"""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Callable
from functools import partial

import msgspec

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.limits import MIB
from vestige.store.protocol import QueryRows
from vestige.store.sqlite import schema
from vestige.store.sqlite.tenant_views import TenantViews

SECONDS_MAX = 3.0
VALUE_BYTES_MAX = 16 * MIB
"""The longest value, so that a query cannot create a gigabyte of zeros."""

ROWS_BYTES_MAX = 32 * MIB
"""The total size of all rows, because hundreds of the longest values would exhaust the memory."""

TOO_LONG = "sql: the query took longer than {:g} s. Add a condition (WHERE run = ...) or a LIMIT."
_STEPS_PER_CHECK = 500
"""Few, because each step may be a function call on the longest value."""

_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer", "readfile", "writefile"))


_QUICK = """
    -> ->> abs avg body_json body_text ceil ceiling char coalesce count cume_dist date datetime
    dense_rank first_value floor group_concat hex ifnull iif json json_array json_array_length
    json_extract json_group_array json_group_object json_object json_quote json_type json_valid
    julianday lag last_value lead length likelihood likely lower max min mod nth_value ntile
    nullif octet_length percent_rank quote random rank round row_number sign sqrt strftime
    string_agg substr substring sum time total typeof unicode unixepoch unlikely upper zeroblob
"""
QUICK_FUNCTIONS = frozenset(_QUICK.split())
"""Functions whose time is at most linear in the size of their arguments."""


class SlowFunctionError(Exception):
    """The query calls a function that is not quick. The store handles this error itself."""


ReadBody = Callable[[int], bytes]


def query(
    connection: sqlite3.Connection,
    sql: str,
    skip: int,
    limit: int,
    read_body: ReadBody,
    views: TenantViews | None = None,
    seconds: float | None = None,
) -> QueryRows:
    """Return at most `limit` rows after `skip`. Raise UsageError for an invalid query.

    `views`: the views of the tenant to which the connection is restricted.
    `seconds`: the time after which this process is killed. Without it, a query that calls a
    slow function raises SlowFunctionError.
    """
    names = _read_names(connection)
    if views is not None:
        names = {name: columns for name, columns in names.items() if name in views.names}
    for name, function in (("body_text", _body_text), ("body_json", _body_json)):
        connection.create_function(name, 1, partial(function, read_body), deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # Before the authorizer is set, because the first use of these looks like CREATE TABLE.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
    deadline = clock.monotonic() + (SECONDS_MAX if seconds is None else seconds)
    connection.set_progress_handler(lambda: clock.monotonic() > deadline, _STEPS_PER_CHECK)
    slow: set[str] = set()

    def authorize(action: int, first: str | None, second: str | None, *where: str | None) -> int:
        if action == sqlite3.SQLITE_FUNCTION and second not in QUICK_FUNCTIONS:
            slow.add(str(second))
        is_read = action == sqlite3.SQLITE_READ
        refused = views is not None and is_read and not views.allows(first, *where)
        if refused or (slow and seconds is None):
            return sqlite3.SQLITE_DENY
        return _authorize(action, second)

    connection.set_authorizer(authorize)
    try:
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description or ()]
        for _ in range(skip):
            if cursor.fetchone() is None:
                break
        rows, more = _read_rows(cursor, limit)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if slow and seconds is None:
            raise SlowFunctionError from error
        if views is not None and "not authorized" in str(error):
            raise UsageError(
                f"sql: only reading is allowed, and only from: {', '.join(names)}."
            ) from error
        raise UsageError(_format_error(str(error), sql, names)) from error
    if not columns:
        raise UsageError("sql: not a query. Write a SELECT; `vestige store schema` has examples.")
    return QueryRows(columns, rows, more)


def _read_rows(cursor: sqlite3.Cursor, limit: int) -> tuple[list[tuple[object, ...]], bool]:
    """Return the next rows, and whether there are more. The first row may have any size."""
    rows: list[tuple[object, ...]] = []
    size = 0
    for row in cursor:
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) == limit or (rows and size > ROWS_BYTES_MAX):
            return rows, True
        rows.append(row)
    return rows, False


def _body_text(read_body: ReadBody, body_id: object) -> str | None:
    """Return the text of a body, or NULL if it is missing, too long, or not text."""
    if not isinstance(body_id, int):
        return None
    try:
        data = read_body(body_id)
        return data.decode() if len(data) <= VALUE_BYTES_MAX else None
    except (NotFoundError, UnicodeDecodeError):
        return None


def _body_json(read_body: ReadBody, body_id: object) -> str | None:
    """Return the text of a body, or NULL if it is not JSON."""
    text = _body_text(read_body, body_id)
    if text is None:
        return None
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return text


def _authorize(action: int, second: str | None) -> int:
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second not in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _read_names(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of all tables and views."""
    tables = connection.execute(
        "SELECT name, type FROM main.sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite%' ORDER BY type, name"
    ).fetchall()
    return {
        table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        if kind == "table"
        else schema.view_columns(table)
        for table, kind in tables
    }


def _format_error(message: str, sql: str, names: dict[str, list[str]]) -> str:
    """Return an error of SQLite with advice: similar columns, the tables, or examples."""
    if found := re.match(r"access to (\S+) is prohibited", message):
        return f"sql: {found[1]}: no access. Tables: {', '.join(names)}."
    if "not authorized" in message or "prohibited" in message or "readonly" in message:
        return "sql: only reading is allowed (SELECT or WITH). Tables: `vestige store schema`."
    if message == "interrupted":
        return TOO_LONG.format(SECONDS_MAX)
    if found := re.match(r"no such column: (\S+)", message):
        column = found[1].rpartition(".")[2]
        used = [table for table in names if re.search(rf"\b{table}\b", sql)]
        columns = sorted({column for table in used or names for column in names[table]})
        near = difflib.get_close_matches(column, columns, 3, 0.4)
        advice = f"Nearest: {', '.join(near)}." if near else f"Columns: {', '.join(columns)}."
        table = used[0] if used else "spans"
        return f"sql: {message}. {advice} `vestige store schema {table}` lists all columns."
    if found := re.match(r"no such table: (\S+)", message):
        return f"sql: {message}. Tables: {', '.join(names)}."
    if "one statement" in message:
        return "sql: only one statement is allowed."
    return f"sql: {message}. `vestige store schema` has the tables and example queries."
