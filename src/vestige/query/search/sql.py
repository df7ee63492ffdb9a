"""The `sql` and `schema` commands: read-only SQL on the store, and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, columns, fit, fit_page
from vestige.store.open import describe_schema
from vestige.store.protocol import QueryRows, Store, StoreSchema

ROWS_MAX = 200
CELL_SHOWN = 120


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

    schema: StoreSchema
    table: str | None

    def lines(self, budget: int) -> list[str]:
        if self.table is not None:
            (found,) = (each for each in self.schema.tables if each.name == self.table)
            command = self.command("schema", self.table, "--json")
            rows = found.sql.splitlines()
            return fit([], rows, [], budget, lambda n: f"… {n} more lines: {command}")
        head = [f"One table with comments on its columns: {self.command('schema', 'spans')}"]
        rows = [
            f"{each.name}{' (view)' if each.is_view else ''}: {', '.join(each.columns)}"
            for each in self.schema.tables
        ]
        end = ["Times are nanoseconds UTC; short ids: 'r' || run || '.s' || number. Examples:"]
        end += [f"  {self.command('sql', example)}" for example in self.schema.examples]
        command = self.command("schema", "--json")
        return fit(head, rows, end, budget, lambda n: f"… {n} more lines: {command}")

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "store_version": self.schema.version,
            "tables": self._table_data(views=False),
            "views": self._table_data(views=True),
            "examples": list(self.schema.examples),
        }

    def _table_data(self, *, views: bool) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "columns": list(each.columns), "sql": each.sql}
            for each in self.schema.tables
            if each.is_view == views and self.table in (None, each.name)
        ]


def schema_answer(table: str | None = None, location: str | Path | None = None) -> SchemaAnswer:
    """Return the tables of a store, by default of the embedded one."""
    schema = describe_schema(location)
    names = [each.name for each in schema.tables]
    if table is not None and table not in names:
        raise NotFoundError(
            f"Table {formatting.single_line(table, 40)!r} not found "
            f"(expected one of {', '.join(names)})."
        )
    return SchemaAnswer(schema, table)
