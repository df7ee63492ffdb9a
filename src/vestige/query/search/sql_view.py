"""The `sql` and `schema` commands: read-only SQL on the store, and its tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, columns, fit, fit_page
from vestige.store.protocol import QueryRows, Store
from vestige.store.sqlite import schema

ROWS_MAX = 200
CELL_SHOWN = 120

EXAMPLES = (
    "SELECT name, count(*) n, avg(duration_ns) / 1e6 ms FROM spans"
    " WHERE type = 'tool' GROUP BY name ORDER BY n DESC",
    "SELECT 'r' || run || '.s' || number id, name, status FROM spans"
    " WHERE status = 'error' ORDER BY id DESC LIMIT 20",
    "SELECT json_extract(attributes, '$.model') model,"
    " sum(json_extract(attributes, '$.input_tokens')) tokens"
    " FROM spans WHERE type = 'llm' GROUP BY 1",
    "SELECT snapshot, slice_type, item_count FROM slices WHERE run = 7 ORDER BY snapshot",
    "SELECT r.name, f.check_name, count(*) n FROM findings f JOIN runs r ON r.id = f.run"
    " WHERE f.finding IS NOT NULL GROUP BY 1, 2",
)


@dataclass
class SqlAnswer(CommandAnswer):
    """The rows of a query."""

    verb: ClassVar[str] = "sql"
    budget: ClassVar[int] = 1_500

    sql: str
    rows: QueryRows
    after: int

    def lines(self, budget: int) -> list[str]:
        if not self.rows.rows:
            return ["No rows." if not self.after else "No more rows."]
        table = [[formatting.single_line(name, 40) for name in self.rows.columns]]
        table += [[_cell(value) for value in row] for row in self.rows.rows]
        head, *rows = columns(table)

        def more(left_out: int) -> str:
            at_least = "at least " if self.rows.more else ""
            command = self._continue(self.after + len(rows) - left_out)
            return f"… {at_least}{left_out} more rows: {command}"

        end = [f"… more rows: {self._continue(self.after + len(rows))}"] if self.rows.more else []
        return fit_page([head], rows, end, budget, more)

    def _continue(self, after: int) -> str:
        return self.command("sql", self.sql, "--after", str(after))

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "columns": list(self.rows.columns),
            "rows": [
                [value.hex() if isinstance(value, bytes) else value for value in row]
                for row in self.rows.rows
            ],
            "next": self.after + len(self.rows.rows) if self.rows.more else None,
        }


def sql_answer(store: Store, sql: str, after: int = 0) -> SqlAnswer:
    return SqlAnswer(sql, store.query(sql, after, ROWS_MAX), after)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return f"<{formatting.size(len(value))} binary>"
    return formatting.single_line(str(value), CELL_SHOWN)


# --- the schema ---------------------------------------------------------------------------------


@dataclass
class SchemaAnswer(CommandAnswer):
    """The tables with comments, and example queries."""

    verb: ClassVar[str] = "schema"
    budget: ClassVar[int] = 1_500

    tables: Sequence[tuple[str, str]]
    """(name, SQL with comments)."""
    views: Sequence[tuple[str, str]]
    table: str | None

    def lines(self, budget: int) -> list[str]:
        if self.table is not None:
            text = dict([*self.tables, *self.views])[self.table]
            command = self.command("schema", self.table, "--json")
            return fit([], text.splitlines(), [], budget, lambda n: f"… {n} more lines: {command}")
        head = [f"One table with comments on its columns: {self.command('schema', 'spans')}"]
        rows = [f"{name}: {', '.join(_columns(text))}" for name, text in self.tables]
        rows += [f"{name} (view): {', '.join(schema.view_columns(name))}" for name, _ in self.views]
        end = ["Times are nanoseconds UTC; short ids: 'r' || run || '.s' || number. Examples:"]
        end += [f"  {self.command('sql', example)}" for example in EXAMPLES]
        command = self.command("schema", "--json")
        return fit(head, rows, end, budget, lambda n: f"… {n} more lines: {command}")

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "store_version": schema.VERSION,
            "tables": [
                {"name": name, "columns": _columns(text), "sql": text}
                for name, text in self.tables
                if self.table in (None, name)
            ],
            "views": [
                {"name": name, "columns": schema.view_columns(name), "sql": text}
                for name, text in self.views
                if self.table in (None, name)
            ],
            "examples": list(EXAMPLES),
        }


def schema_answer(table: str | None = None) -> SchemaAnswer:
    tables, views = schema.tables(), schema.views()
    names = [name for name, _ in (*tables, *views)]
    if table is not None and table not in names:
        raise NotFoundError(
            f"Table {formatting.single_line(table, 40)!r} not found "
            f"(expected one of {', '.join(names)})."
        )
    first = ("runs", "spans", "logs", "links", "findings", "notes", "rollups")
    tables.sort(key=lambda named: first.index(named[0]) if named[0] in first else len(first))
    return SchemaAnswer(tables, views, table)


def _columns(text: str) -> list[str]:
    return [*re.findall(r"(?m)^ +(\w+) +(?:INTEGER|TEXT|BLOB|REAL)", text)]
