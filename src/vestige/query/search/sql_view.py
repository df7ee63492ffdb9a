"""`sql` and `schema`: the store's own tables, read-only, for what no verb answers."""

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
    "SELECT name, count(*) n, avg(duration_ns) / 1e6 ms FROM spans WHERE type = 'tool' GROUP BY name ORDER BY n DESC",
    "SELECT 'r' || run || '.s' || number id, name, status FROM spans WHERE status = 'error' ORDER BY id DESC LIMIT 20",
    "SELECT json_extract(attributes, '$.model') model, sum(json_extract(attributes, '$.input_tokens')) tokens FROM spans WHERE type = 'llm' GROUP BY 1",
    "SELECT snapshot, slice_type, item_count FROM slices WHERE run = 7 ORDER BY snapshot",
    "SELECT r.name, f.check_name, count(*) n FROM findings f JOIN runs r ON r.id = f.run WHERE f.finding IS NOT NULL GROUP BY 1, 2",
)


@dataclass
class SqlAnswer(CommandAnswer):
    """Rows of a query."""

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
            least = "at least " if self.rows.more else ""
            again = self._again(self.after + len(rows) - left_out)
            return f"… {least}{left_out} more rows: {again}"

        end = [f"… more rows: {self._again(self.after + len(rows))}"] if self.rows.more else []
        return fit_page([head], rows, end, budget, more)

    def _again(self, after: int) -> str:
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
        return f"<{formatting.size(len(value))} of bytes>"
    return formatting.single_line(str(value), CELL_SHOWN)


# --- the schema ---------------------------------------------------------------------------------


@dataclass
class SchemaAnswer(CommandAnswer):
    """The tables, commented, and queries to begin with."""

    verb: ClassVar[str] = "schema"
    budget: ClassVar[int] = 1_500

    tables: Sequence[tuple[str, str]]
    """Name and commented text."""
    views: Sequence[tuple[str, str]]
    table: str | None

    def lines(self, budget: int) -> list[str]:
        if self.table is not None:
            text = dict([*self.tables, *self.views])[self.table]
            whole = self.command("schema", self.table, "--json")
            return fit(
                [], text.splitlines(), [], budget, lambda n: f"… {n} lines left out: {whole}"
            )
        head = [
            f"One table in full, with what each column means: {self.command('schema', 'spans')}"
        ]
        rows = [f"{name}: {', '.join(_columns(text))}" for name, text in self.tables]
        rows += [f"{name} (view): {', '.join(schema.view_columns(name))}" for name, _ in self.views]
        end = ["Times are nanoseconds UTC; short ids: 'r' || run || '.s' || number. Examples:"]
        end += [f"  {self.command('sql', example)}" for example in EXAMPLES]
        whole = self.command("schema", "--json")
        return fit(head, rows, end, budget, lambda n: f"… {n} lines left out: {whole}")

    def data(self) -> dict[str, Any]:
        chosen = [each for each in self.tables if self.table in (None, each[0])]
        views = [each for each in self.views if self.table in (None, each[0])]
        return {
            "version": self.version,
            "store_version": schema.VERSION,
            "tables": [
                {"name": name, "columns": _columns(text), "sql": text} for name, text in chosen
            ],
            "views": [
                {"name": name, "columns": schema.view_columns(name), "sql": text}
                for name, text in views
            ],
            "examples": list(EXAMPLES),
        }


def schema_answer(table: str | None = None) -> SchemaAnswer:
    tables, views = schema.tables(), schema.views()
    names = [name for name, _ in (*tables, *views)]
    if table is not None and table not in names:
        raise NotFoundError(
            f"{formatting.single_line(table, 40)!r}: no such table. There are: {', '.join(names)}."
        )
    first = {
        name: n
        for n, name in enumerate(("runs", "spans", "logs", "links", "findings", "notes", "rollups"))
    }
    tables.sort(key=lambda each: first.get(each[0], 99))
    return SchemaAnswer(tables, views, table)


def _columns(text: str) -> list[str]:
    names = re.findall(r"(?m)^ +(\w+) +(?:INTEGER|TEXT|BLOB|REAL)", text)
    return list(names)
