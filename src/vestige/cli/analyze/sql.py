"""`vestige sql`, `schema`: read-only SQL over the store."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "sql",
    cls=Examples,
    examples="""
  vestige sql --schema spans
  vestige sql "SELECT name, count(*) FROM spans GROUP BY name"
  vestige sql "SELECT * FROM runs WHERE outcome = 'error'" --json
  vestige sql --on x.wink "SELECT snapshot, slice_type, item_count FROM slices"
""",
    exits="0 ok, 2 bad query or no data directory, 3 store unreadable",
)
@click.argument("query", required=False)
@click.option("--schema", "show_schema", is_flag=True, help="Show the tables, or the one named.")
@click.option(
    "--after", default=0, type=click.IntRange(0), metavar="N", help="Skip the first N rows."
)
@click.option("--on", metavar="PATH", help="Query a bundle or another file.")
@answer_options
def sql(
    query: str | None,
    show_schema: bool,
    after: int,
    on: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Run a read-only SQL query.

    Time, rows and text are limited. `vestige sql --schema` shows the tables, with examples.
    """
    from vestige.errors import NotFoundError
    from vestige.query.search.sql import schema_answer
    from vestige.query.text_layout import shell_word
    from vestige.transfer import is_source

    if show_schema:
        print_answer(schema_answer(query), as_json, budget)
        return
    if query is None:
        raise click.UsageError("QUERY is missing. For the tables: vestige sql --schema.")
    if on is not None and not is_source(on):
        raise NotFoundError(f"{on}: not found, or not a supported format.")
    with open_debugger(home, on) as (debugger, _):
        if on is not None:
            debugger.at = f"--on {shell_word(on)}"
        answer = debugger.sql(query, after=after)
    print_answer(answer, as_json, budget)


@click.command(
    "schema",
    cls=Examples,
    examples="""
  vestige store schema             tables, columns and example queries
  vestige store schema spans       one table, with the meaning of each column
""",
    exits="0 ok, 2 table not found",
)
@click.argument("table", required=False)
@answer_options
def schema(table: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Show the tables that `vestige sql` can query."""
    from vestige.query.search.sql import schema_answer
    from vestige.settings import find_store

    print_answer(schema_answer(table, find_store(home)), as_json, budget)
