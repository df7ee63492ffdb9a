"""What one tenant sees: views that stand before the tables, on a connection of its own.

    shadow = cover(connection, "acme")         # from here on `runs` is acme's runs alone, in every query
    connection.set_authorizer(...)             # and with `shadow.allows`, also in a query of the user's

A temporary view hides a table of the same name. So a query that was written without a thought of
tenants cannot see another's rows, and one that somebody forgot to adapt is no leak. A view looks a
row's run up by its number: no index is lost, and what concerns one run stays as quick.

The one hard fact: a user may write `main.runs`, and name a part of the query after one of our
views (`WITH runs AS (SELECT * FROM main.runs) ...`), which SQLite's authorizer cannot tell from
the view itself. So what may read the tables has a name that is made up anew for each connection.

Elsewhere: why, docs/decisions/0030-tenants.md; bodies of each tenant have ids of their own,
store/sqlite/bodies/body_store.py.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

from vestige._runtime import clock
from vestige.errors import UsageError
from vestige.record.tenant import is_tenant
from vestige.store.sqlite import schema

_OF_RUN = "SELECT {columns} FROM main.{table} x WHERE EXISTS (SELECT 1 FROM main.runs r WHERE r.id = x.run AND r.tenant = {tenant})"
TABLES = {
    # The plus hides the tenant from the planner: a query goes the same way as without one, and not
    # through all runs of the tenant first. The list of runs, which should, asks for it itself.
    "runs": "SELECT * FROM main.runs WHERE +tenant = {tenant}",
    "spans": _OF_RUN.format(columns="*", table="spans", tenant="{tenant}"),
    "logs": _OF_RUN.format(columns="*", table="logs", tenant="{tenant}"),
    # A view has no rowid; these two tables are read in its order.
    "links": _OF_RUN.format(columns="*, rowid AS rowid", table="links", tenant="{tenant}"),
    "findings": _OF_RUN.format(columns="*, rowid AS rowid", table="findings", tenant="{tenant}"),
    "notes": _OF_RUN.format(columns="*", table="notes", tenant="{tenant}"),
    "rollups": "SELECT * FROM main.rollups WHERE tenant = {tenant}",
    "tenants": "SELECT * FROM main.tenants WHERE name = {tenant}",
    "bodies": "SELECT * FROM main.bodies WHERE tenant = (SELECT id FROM main.tenants WHERE name = {tenant})",
    "sheets": "SELECT * FROM main.sheets WHERE tenant = (SELECT id FROM main.tenants WHERE name = {tenant})",
    "writers": "SELECT * FROM main.writers WHERE tenant = {tenant}",
    "unknown": "SELECT * FROM main.unknown x WHERE EXISTS (SELECT 1 FROM main.writers w WHERE w.writer = x.writer AND w.tenant = {tenant})",
    "remote_writers": "SELECT * FROM main.remote_writers x WHERE EXISTS (SELECT 1 FROM main.writers w WHERE w.writer = x.writer AND w.tenant = {tenant})",
    "journals": "SELECT * FROM main.journals x WHERE EXISTS (SELECT 1 FROM main.writers w WHERE w.writer = x.writer AND w.tenant = {tenant})",
}  # fmt: skip
HIDDEN = frozenset(("facts", "pieces", "nodes", "closes"))
"""Not a tenant's to see: of the home as a whole, or shared between tenants where texts are equal."""

_FUNCTIONS = frozenset(("json_each", "json_tree"))
"""Tables that are functions of what the query itself gives them."""


@dataclass(frozen=True, slots=True)
class TenantViews:
    """What stands before the tables of one connection."""

    key: str
    """The beginning of the names that may read the tables themselves."""
    names: frozenset[str]

    def allows(self, table: str | None, database: str | None, inside: str | None) -> bool:
        """May a column of this table be read? `inside`: the view that wants to."""
        if table in _FUNCTIONS:
            return True
        if database == "temp":
            return table in self.names or (table or "").startswith(self.key)
        return (inside or "").startswith(self.key)


def install_tenant_views(connection: sqlite3.Connection, tenant: str) -> TenantViews:
    """Put a tenant's views before the tables. Nothing is written to the store."""
    if not is_tenant(tenant):
        raise UsageError(f"{tenant[:80]!r}: no name for a tenant.")
    key = f"own_{clock.random_bytes(16).hex()}_"
    views = []
    for table, query in TABLES.items():
        whose = query.format(tenant=f"'{tenant}'")
        views.append(f"CREATE TEMP VIEW {key}{table} AS {whose};")
        views.append(f"CREATE TEMP VIEW {table} AS SELECT * FROM temp.{key}{table};")
    for name, text in schema.views():
        # What they are made from has to be ours too, even where a query names a part of it alike.
        body = re.sub(r"\bFROM (spans|snapshots)\b", r"FROM temp.\1", text)
        views.append(body.replace(f"CREATE VIEW {name}", f"CREATE TEMP VIEW {name}", 1))
    # In memory: a reader leaves no file behind. All at once: a query of the user's waits for it.
    connection.executescript(
        "\n".join(("PRAGMA temp_store = MEMORY;", "BEGIN;", *views, "COMMIT;"))
    )
    return TenantViews(key, frozenset((*TABLES, *(name for name, _ in schema.views()))))
