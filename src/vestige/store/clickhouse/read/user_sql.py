"""Run a user's SQL query: only reading, only the tables of a store, only rows of its tenant.

The server parses the query, and its syntax tree is compared with what is allowed: the tables of
`schema.USER_TABLES` by their plain names, subqueries, and functions that only compute. Then the
names of the tables are defined as subqueries with the newest versions of the rows (WITH runs AS
...), so a query cannot see more than a reader does. Settings and formats cannot be changed.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from vestige.errors import StoreError, UsageError
from vestige.limits import MIB
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.client import ClickHouseError, Client
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.protocol import QueryRows

SECONDS_MAX: Final = 5
_LENGTH_MAX: Final = 100_000
_SETTINGS: Final = {
    "max_execution_time": SECONDS_MAX,
    "max_memory_usage": 1_024 * MIB,
    "max_result_bytes": 64 * MIB,
    "max_rows_in_set": 50_000_000,
    "readonly": 1,
}
_FUNCTIONS = """
    abs and any anyLast argMax argMin array arrayConcat arrayCount arrayDistinct arrayElement
    arrayExists arrayFilter arrayJoin arrayMap arraySlice arraySort arrayStringConcat arraySum
    assumeNotNull avg avgIf bitAnd bitOr caseWithExpression ceil coalesce concat count
    countDistinct countIf countSubstrings dateDiff dense_rank divide empty endsWith equals exp
    extract extractAll first_value floor format formatDateTime formatReadableQuantity
    formatReadableSize formatReadableTimeDelta fromUnixTimestamp fromUnixTimestamp64Milli
    fromUnixTimestamp64Nano globalIn greater greaterOrEquals greatest groupArray groupUniqArray
    has hasToken hex identity if ifNull ilike in indexOf intDiv isNotNull isNull
    JSONExtractArrayRaw JSONExtractBool JSONExtractFloat JSONExtractInt JSONExtractKeys
    JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONLength JSONType lag lagInFrame
    lambda last_value lead leadInFrame least left leftUTF8 length lengthUTF8 less lessOrEquals
    like log log10 log2 lower lowerUTF8 match max maxIf median min minIf minus modulo multiIf
    multiply multiSearchAny negate not notEmpty notEquals notILike notIn notLike now nullIf or
    plus position positionCaseInsensitive pow quantile quantileExact quantileIf quantileTDigest
    quantiles rank replaceAll replaceOne replaceRegexpAll right round row_number splitByChar
    splitByString startsWith stddevPop stddevSamp substring substringUTF8 sum sumIf sumMap
    toDate toDateTime toDateTime64 today toDayOfWeek toFloat64 toHour toInt32 toInt64 toMonday
    toMonth toNullable toStartOfDay toStartOfHour toStartOfInterval toStartOfMinute
    toStartOfMonth toStartOfWeek toString toTypeName toUInt64 toUnixTimestamp toYear toYYYYMM
    toYYYYMMDD topK trim tuple tupleElement uniq uniqExact uniqIf unhex upper upperUTF8 varPop
    yesterday CAST toIntervalDay toIntervalHour toIntervalMinute toIntervalWeek xor
"""
FUNCTIONS: Final = frozenset(name.lower() for name in _FUNCTIONS.split())
"""Functions that only compute, in lower case."""

_INTERNAL: Final = frozenset(name for name, _ in schema.iter_tables()) - set(schema.USER_TABLES)
_IN: Final = frozenset(("in", "notin", "globalin", "globalnotin", "nullin", "notnullin"))
_LINE: Final = re.compile(r"( *)(\w+)(?: (.*?))?(?: \(alias .*?\))?(?: \(children \d+\))?$")


def query(client: Client, view: View, sql: str, skip: int, limit: int) -> QueryRows:
    """Return at most `limit` rows after `skip`. Raise UsageError for an invalid query."""
    if len(sql) > _LENGTH_MAX:
        raise UsageError(f"sql: longer than {_LENGTH_MAX} characters.")
    try:
        plain = client.value("SELECT formatQuerySingleLine({text:String})", text=sql)
    except ClickHouseError as error:
        raise UsageError(f"sql: {_format_error(error, sql)}") from error
    if not re.match(r"(?i)(SELECT|WITH|\()", plain):
        raise UsageError(
            "sql: only reading is allowed (SELECT or WITH). See `vestige store schema`."
        )
    try:
        lines = [row[0] for row in client.query(f"EXPLAIN AST {plain}")]
    except ClickHouseError as error:
        raise UsageError(f"sql: {_format_error(error, sql)}") from error
    validate(_parse_tree(lines))
    database = client.address.database
    tables = ", ".join(_define_tables(replace(view, prefix=f"{database}.")))
    statement = (
        f"WITH {tables} SELECT * FROM ({plain}) LIMIT {max(0, int(limit)) + 1}"
        f" OFFSET {max(0, int(skip))}"
    )
    try:
        columns, rows = client.query_with_names(statement, _SETTINGS, **view.parameters())
    except ClickHouseError as error:
        raise UsageError(f"sql: {_format_error(error, sql)}") from error
    found = [tuple(map(_to_plain, row)) for row in rows[:limit]]
    return QueryRows(list(columns), found, len(rows) > limit)


def _define_tables(view: View) -> Iterator[str]:
    """Yield the definitions of the names of tables. Later ones use the runs that exist."""
    for table in schema.USER_TABLES:
        names = [
            name
            for name in schema.column_types(table)
            if name not in (*schema.VERSION_COLUMNS, "changed", "week", "first_week")
        ]
        if table == "findings":
            source = view.current_findings()
        elif table == "rollups":
            source = f"(SELECT * FROM {view.prefix}rollups WHERE {view.visible('rollups')})"
        elif table in ("runs", "bodies"):
            source = view.current(table)
        else:
            live = f"run IN (SELECT id FROM {view.current('runs')})"
            source = view.current(table, live)
        yield f"{table} AS (SELECT {', '.join(names)} FROM {source})"


class _Node:
    """A node of the syntax tree: its kind, its name, and its children."""

    __slots__ = ("children", "kind", "name")

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.children: list[_Node] = []

    def iter_nodes(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.iter_nodes()


def _parse_tree(lines: list[str]) -> _Node:
    """Parse the text of EXPLAIN AST, in which the depth of a node is its indentation."""
    root = _Node("", "")
    path = [root]
    for line in "\n".join(lines).split("\n"):
        found = _LINE.match(line)
        if found is None:
            # A literal with line breaks continues here. It has no children.
            continue
        depth = len(found[1])
        node = _Node(found[2], (found[3] or "").strip())
        if depth + 1 > len(path):
            continue
        del path[depth + 1 :]
        path[-1].children.append(node)
        path.append(node)
    return root


def validate(root: _Node) -> None:
    """Raise UsageError if a query does more than read the tables of a store."""
    if len(root.children) != 1 or root.children[0].kind != "SelectWithUnionQuery":
        raise UsageError("sql: only one SELECT is allowed.")
    if len(root.children[0].children) != 1:
        raise UsageError("sql: FORMAT and INTO OUTFILE are not allowed.")
    for node in root.iter_nodes():
        if node.kind == "Set":
            raise UsageError("sql: SETTINGS are not allowed.")
        if node.kind == "TableIdentifier" and (
            "." in node.name or "`" in node.name or node.name in _INTERNAL
        ):
            raise UsageError(
                f"sql: {node.name}: no access. Tables: {', '.join(schema.USER_TABLES)}."
            )
        if node.kind == "TableExpression" and any(
            child.kind == "Function" for child in node.children
        ):
            raise UsageError("sql: table functions are not allowed.")
        if node.kind == "Function":
            _validate_function(node)
        elif node.kind not in _KINDS:
            raise UsageError(f"sql: {node.kind} is not allowed.")


_KINDS: Final = frozenset(
    (
        "", "SelectWithUnionQuery", "ExpressionList", "SelectQuery", "WithElement", "Subquery",
        "TablesInSelectQuery", "TablesInSelectQueryElement", "TableExpression", "TableIdentifier",
        "TableJoin", "Identifier", "Asterisk", "QualifiedAsterisk", "Literal", "OrderByElement",
        "WindowDefinition", "WindowListElement", "SelectIntersectExceptQuery", "Array", "Tuple",
        "ArrayJoin", "InterpolateElement", "ColumnsListLiteral",
    )
)  # fmt: skip


def _validate_function(node: _Node) -> None:
    name = node.name.partition(" ")[0]
    if name.lower() not in FUNCTIONS:
        near = difflib.get_close_matches(name, _FUNCTIONS.split(), 3, 0.6)
        advice = f" Nearest: {', '.join(near)}." if near else ""
        raise UsageError(f"sql: the function {name} is not allowed.{advice}")
    if name.lower() in _IN:
        arguments = node.children[0].children if node.children else []
        if len(arguments) != 2 or arguments[1].kind == "Identifier":
            raise UsageError(f"sql: {name} needs a list or a subquery on its right side.")


def _to_plain(value: Any) -> object:
    if isinstance(value, (datetime.date, datetime.datetime)):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_to_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _to_plain(each) for key, each in value.items()}
    return value


def _format_error(error: StoreError, sql: str) -> str:
    """Return an error of the server without its address, and with advice."""
    text = str(error).partition(": ")[2]
    code = getattr(error, "code", "")
    if code in ("159", "160", "241", "307", "396"):
        return (
            f"the query exceeded a limit of time or memory ({SECONDS_MAX} s)."
            " Add a condition (WHERE run = ...) or a LIMIT."
        )
    if code == "60":
        return f"no such table. Tables: {', '.join(schema.USER_TABLES)}."
    if code == "47":
        used = [name for name in schema.USER_TABLES if re.search(rf"\b{name}\b", sql)]
        columns = sorted({each for name in used for each in schema.column_types(name)})
        return f"{text.partition(' In scope')[0]} Columns: {', '.join(columns)}."
    return text.partition(" In scope")[0][:300] or "invalid query"
