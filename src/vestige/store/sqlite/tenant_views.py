"""Temporary views that restrict a connection to the rows of one tenant.

    views = install_tenant_views(connection, "acme")     # `runs` now has only acme's runs
    connection.set_authorizer(...)                       # for user queries, with `views.allows`

A temporary view hides the table of the same name. So no query can see another tenant's rows,
even if it was written without tenants in mind. A view looks up the run of a row by its id, so
indexes still work, and queries about one run are as fast as before.

The one hard fact: a user may read `main.runs` in a common table expression with the name of a
view (`WITH runs AS (SELECT * FROM main.runs) ...`), and SQLite's authorizer cannot distinguish
it from the view. So only views with a random name, new for each connection, may read the tables.

Elsewhere: the reasons, docs/decisions/0030-tenants.md; body ids of tenants, bodies/body_store.py.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

from vestige._runtime import clock
from vestige.errors import UsageError
from vestige.record.tenant import is_tenant
from vestige.store.sqlite import schema

_BY_TENANT = "SELECT * FROM main.{table} WHERE tenant = {tenant}"
_BY_TENANT_ID = (
    "SELECT * FROM main.{table} WHERE tenant = (SELECT id FROM main.tenants WHERE name = {tenant})"
)
_BY_RUN = (
    "SELECT * FROM main.{table} x WHERE EXISTS"
    " (SELECT 1 FROM main.runs r WHERE r.id = x.run AND r.tenant = {tenant})"
)
_BY_WRITER = (
    "SELECT * FROM main.{table} x WHERE EXISTS"
    " (SELECT 1 FROM main.writers w WHERE w.writer = x.writer AND w.tenant = {tenant})"
)
# A view has no rowid, and links and findings are read in its order.
_BY_RUN_WITH_ROWID = _BY_RUN.replace("*", "*, rowid AS rowid", 1)
TABLES = {
    # The plus hides the condition from the planner, so that queries use the same indexes as
    # without tenants. The list of runs has a condition of its own on the tenant.
    "runs": "SELECT * FROM main.runs WHERE +tenant = {tenant}",
    "spans": _BY_RUN,
    "logs": _BY_RUN,
    "links": _BY_RUN_WITH_ROWID,
    "findings": _BY_RUN_WITH_ROWID,
    "notes": _BY_RUN,
    "rollups": _BY_TENANT,
    "tenants": "SELECT * FROM main.tenants WHERE name = {tenant}",
    "bodies": _BY_TENANT_ID,
    "sheets": _BY_TENANT_ID,
    "writers": _BY_TENANT,
    "unknown": _BY_WRITER,
    "remote_writers": _BY_WRITER,
    "journals": _BY_WRITER,
}
HIDDEN = frozenset(("facts", "pieces", "nodes", "closes"))
"""Tables that no tenant may see: they describe the home, or share equal texts between tenants."""

_FUNCTIONS = frozenset(("json_each", "json_tree"))
"""Table-valued functions, which read only their arguments."""


@dataclass(frozen=True, slots=True)
class TenantViews:
    """The views of one connection, and the rule for what may read the tables."""

    key: str
    """The prefix of the views that may read the tables."""
    names: frozenset[str]

    def allows(self, table: str | None, database: str | None, inside: str | None) -> bool:
        """Return whether a column of a table may be read. `inside` is the reading view."""
        if table in _FUNCTIONS:
            return True
        if database == "temp":
            return table in self.names or (table or "").startswith(self.key)
        return (inside or "").startswith(self.key)


def install_tenant_views(connection: sqlite3.Connection, tenant: str) -> TenantViews:
    """Hide the tables behind a tenant's views. Nothing is written to the store."""
    if not is_tenant(tenant):
        raise UsageError(f"{tenant[:80]!r}: not a valid tenant name.")
    key = f"own_{clock.random_bytes(16).hex()}_"
    views = []
    for table, query in TABLES.items():
        rows = query.format(table=table, tenant=f"'{tenant}'")
        views.append(f"CREATE TEMP VIEW {key}{table} AS {rows};")
        views.append(f"CREATE TEMP VIEW {table} AS SELECT * FROM temp.{key}{table};")
    for name, text in schema.views():
        # Qualified, so that a common table expression of the query cannot replace their source.
        body = re.sub(r"\bFROM (spans|snapshots)\b", r"FROM temp.\1", text)
        views.append(body.replace(f"CREATE VIEW {name}", f"CREATE TEMP VIEW {name}", 1))
    # In memory, so that a reader leaves no file. One script, because each user query waits for it.
    connection.executescript(
        "\n".join(("PRAGMA temp_store = MEMORY;", "BEGIN;", *views, "COMMIT;"))
    )
    return TenantViews(key, frozenset((*TABLES, *(name for name, _ in schema.views()))))
