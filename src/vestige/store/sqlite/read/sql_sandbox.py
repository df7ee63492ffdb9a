"""A query of the user's own: it may read what there is, and nothing else, and not for long.

Three fences, each enough alone for most: the file is opened read-only, an authorizer lets
only reading through, and a clock looks in every few hundred steps.

A call of a function is one step, however long it takes, and nothing can interrupt it. Those that are
done when they have gone through their arguments once are named here; a query that calls another one
(`LIKE` of two long texts takes hours) is asked in a process that can be ended (store/sqlite/read/isolated_query.py).
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
from vestige.store.protocol import Rows
from vestige.store.sqlite import schema
from vestige.store.sqlite.tenant_views import TenantViews

SECONDS_MAX = 3.0
VALUE_BYTES_MAX = 16 * MIB
"""Of one value: a query must not be able to make a gigabyte of zeros."""

ROWS_BYTES_MAX = 32 * MIB
"""Of all rows of an answer: hundreds of the longest values would be more than a machine has."""

TOO_LONG = "sql: took longer than {:g} s. Ask for less: WHERE run = ..., or LIMIT."
_STEPS_A_LOOK = 500
"""Each may be a call that goes through the longest value."""

_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer", "readfile", "writefile"))


QUICK_FUNCTIONS = frozenset(
    (
        "->",
        "->>",
        "abs",
        "avg",
        "body_json",
        "body_text",
        "ceil",
        "ceiling",
        "char",
        "coalesce",
        "count",
        "cume_dist",
        "date",
        "datetime",
        "dense_rank",
        "first_value",
        "floor",
        "group_concat",
        "hex",
        "ifnull",
        "iif",
        "json",
        "json_array",
        "json_array_length",
        "json_extract",
        "json_group_array",
        "json_group_object",
        "json_object",
        "json_quote",
        "json_type",
        "json_valid",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "likelihood",
        "likely",
        "lower",
        "max",
        "min",
        "mod",
        "nth_value",
        "ntile",
        "nullif",
        "octet_length",
        "percent_rank",
        "quote",
        "random",
        "rank",
        "round",
        "row_number",
        "sign",
        "sqrt",
        "strftime",
        "string_agg",
        "substr",
        "substring",
        "sum",
        "time",
        "total",
        "typeof",
        "unicode",
        "unixepoch",
        "unlikely",
        "upper",
        "zeroblob",
    )
)


class SlowFunctionError(Exception):
    """The query calls a function of which nobody knows how long it takes. Never leaves the store."""


ReadBody = Callable[[int], bytes]


def query(
    connection: sqlite3.Connection,
    sql: str,
    skip: int,
    limit: int,
    read_body: ReadBody,
    shadow: TenantViews | None = None,
    seconds: float | None = None,
) -> Rows:
    """The rows after `skip`, at most `limit`; UsageError that teaches for whatever is wrong.

    `shadow`: the connection is one tenant's; what it may read then is asked of it.
    `seconds`: this process is ended soon after them, so functions may be slow. Else a query with
    such a one is a SlowFunctionError.
    """
    names = _names(connection)
    if shadow is not None:
        names = {name: columns for name, columns in names.items() if name in shadow.names}
    for name, function in (("body_text", _body_text), ("body_json", _body_json)):
        connection.create_function(name, 1, partial(function, read_body), deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # Made here, where nothing is forbidden yet: making them looks like creating a table.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
    deadline = clock.monotonic() + (SECONDS_MAX if seconds is None else seconds)
    connection.set_progress_handler(lambda: clock.monotonic() > deadline, _STEPS_A_LOOK)
    slow: set[str] = set()

    def authorize(action: int, first: str | None, second: str | None, *where: str | None) -> int:
        if action == sqlite3.SQLITE_FUNCTION and second not in QUICK_FUNCTIONS:
            slow.add(str(second))
        read = action == sqlite3.SQLITE_READ
        refused = shadow is not None and read and not shadow.allows(first, *where)
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
        rows, more = _take(cursor, limit)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if slow and seconds is None:
            raise SlowFunctionError from error
        if shadow is not None and "not authorized" in str(error):
            raise UsageError(
                f"sql: only reading is allowed here, and only of: {', '.join(names)}."
            ) from error
        raise UsageError(_teach(str(error), sql, names)) from error
    if not columns:
        raise UsageError("sql: no question in it. Write a SELECT; `vestige schema` has examples.")
    return Rows(columns, rows, more)


def _take(cursor: sqlite3.Cursor, limit: int) -> tuple[list[tuple[object, ...]], bool]:
    """The next rows, and whether there are more. The first at least, whatever its size."""
    rows: list[tuple[object, ...]] = []
    size = 0
    for row in cursor:
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) == limit or (rows and size > ROWS_BYTES_MAX):
            return rows, True
        rows.append(row)
    return rows, False


def _body_text(read_body: ReadBody, body_id: object) -> str | None:
    """The text of a body; NULL if it is gone, too long, or no text."""
    if not isinstance(body_id, int):
        return None
    try:
        data = read_body(body_id)
        return data.decode() if len(data) <= VALUE_BYTES_MAX else None
    except (NotFoundError, UnicodeDecodeError):
        return None


def _body_json(read_body: ReadBody, body_id: object) -> str | None:
    """The same, if it is JSON."""
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


def _names(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables and views, and their columns."""
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


def _teach(message: str, sql: str, names: dict[str, list[str]]) -> str:
    if found := re.match(r"access to (\S+) is prohibited", message):
        return f"sql: {found[1]}: not yours to read. Tables: {', '.join(names)}."
    if "not authorized" in message or "prohibited" in message or "readonly" in message:
        return (
            "sql: only reading is allowed here (SELECT or WITH). `vestige schema` shows the tables."
        )
    if message == "interrupted":
        return TOO_LONG.format(SECONDS_MAX)
    if found := re.match(r"no such column: (\S+)", message):
        wanted = found[1].rpartition(".")[2]
        used = [table for table in names if re.search(rf"\b{table}\b", sql)]
        columns = {column for table in used or names for column in names[table]}
        near = difflib.get_close_matches(wanted, sorted(columns), 3, 0.4)
        told = (
            f"Nearest: {', '.join(near)}." if near else f"There are: {', '.join(sorted(columns))}."
        )
        return (
            f"sql: {message}. {told} `vestige schema {used[0] if used else 'spans'}` has them all."
        )
    if found := re.match(r"no such table: (\S+)", message):
        return f"sql: {message}. Tables: {', '.join(names)}."
    if "one statement" in message:
        return "sql: one statement at a time."
    return f"sql: {message}. `vestige schema` has the tables and example queries."
