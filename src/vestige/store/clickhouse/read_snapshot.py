"""The state of a store that one question reads: a commit, and the rows that belong to it.

    view = read_view(client, tenant)
    sql = f"SELECT name FROM {current('runs', 'id = {run:Int64}')}"
    client.query(sql, **view.parameters(), run=7)

A commit is one row of `commits` (ingest/commit_log.py). Rows of later commits, and of attempts that
failed, are left out by conditions that `current` adds. So all queries with one view see one state,
and a tenant's view contains its rows only.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.store.clickhouse.client import Client

COUNTERS: Final = ("runs", "writers", "spans", "logs", "links", "closes", "bodies")
"""Kinds of rows that are numbered."""

_KEYS: Final = {
    "runs": "id",
    "writers": "id",
    "spans": "id",
    "logs": "id",
    "links": "id",
    "bodies": "id",
    "closes": "id",
    "journals": "writer, generation",
    "remote_writers": "writer",
    "notes": "run, id",
    "facts": "key",
}
"""The columns that identify a row."""


KnownRun = tuple[int, int, int]
"""The row id of a run, the last commit that added records to it, and whether it is pinned."""


class View(msgspec.Struct, frozen=True):
    """A commit, as one reader sees it."""

    number: int
    """The number of the commit. 0: the store is empty."""
    attempt: int
    counters: dict[str, int]
    """The highest id of each kind of row."""
    dead: tuple[int, ...]
    """Attempts that failed."""
    tenant: str | None
    base: int = 0
    """The number of the rollups to read (ingest/rollup_compaction.py)."""
    prefix: str = ""
    """The prefix of each table name: the database and a dot, or nothing."""
    known: dict[str, KnownRun] = msgspec.field(default_factory=dict)
    """Runs that were found in this state, by id, so that a command looks each one up once."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the conditions of `current` need."""
        return {"head": self.number, "dead": list(self.dead), "tenant": self.tenant or ""}

    def visible(self, table: str) -> str:
        """Return the SQL condition for rows of this state, in any version."""
        parts = ["commit <= {head:UInt64}"]
        if table == "rollups":
            parts.append(f"base = {self.base}")
        if self.dead:
            parts.append("attempt NOT IN {dead:Array(UInt64)}")
        if self.tenant is not None:
            if table in ("journals", "remote_writers"):
                writers = self.current("writers")
                parts.append(f"writer IN (SELECT writer FROM {writers})")
            elif table == "facts":
                parts.append("0")
            else:
                parts.insert(0, "tenant = {tenant:String}")
        return " AND ".join(parts)

    def current(self, table: str, where: str = "1") -> str:
        """Return a subquery with the newest version of each row.

        `where` may use only columns that are equal in all versions of a row.
        """
        key = _KEYS[table]
        return (
            f"(SELECT * FROM (SELECT * FROM {self.prefix}{table}"
            f" WHERE {self.visible(table)} AND ({where})"
            f" ORDER BY {key}, commit DESC LIMIT 1 BY {key}) WHERE deleted = 0)"
        )

    def current_findings(self, where: str = "1") -> str:
        """Return a subquery with the findings that are not stale."""
        checked = (
            f"id IN (SELECT run FROM {self.prefix}findings"
            f" WHERE {self.visible('findings')} AND ({where}))"
        )
        return (
            f"(SELECT * FROM {self.prefix}findings WHERE {self.visible('findings')} AND ({where})"
            f" AND (run, commit) IN (SELECT run, max(commit) FROM {self.prefix}findings"
            f" WHERE {self.visible('findings')} AND ({where}) GROUP BY run)"
            f" AND (run, changed) IN (SELECT id, changed FROM {self.current('runs', checked)}))"
        )


def read_view(client: Client, tenant: str | None = None) -> View:
    """Return the newest state of the store."""
    # In this order: an attempt is registered before the commit that it might have made.
    rows = client.query(
        f"SELECT number, attempt, base, {', '.join(COUNTERS)}, dead FROM commits"
        " ORDER BY number DESC LIMIT 1"
    )
    if not rows:
        return View(0, 0, dict.fromkeys(COUNTERS, 0), (), tenant)
    number, attempt, base, *counters, dead = rows[0]
    others = client.query(
        "SELECT attempt FROM attempts WHERE number = {number:UInt64}", number=number
    )
    lost = {other for (other,) in others if other != attempt}
    numbered = dict(zip(COUNTERS, counters, strict=True))
    return View(number, attempt, numbered, tuple(sorted(lost.union(dead))), tenant, base)
