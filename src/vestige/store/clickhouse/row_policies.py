"""Read access of other programs to the rows of one tenant, which the database itself enforces.

Vestige adds the tenant to each of its own queries (read_snapshot.py). A dashboard or a notebook
does not, so an operator gives its user row policies: `vestige store grant TENANT USER`.
"""

from __future__ import annotations

import re
from typing import Final

from vestige.errors import UsageError
from vestige.record.tenant import is_tenant
from vestige.store.clickhouse.address import Address
from vestige.store.clickhouse.schema import USER_TABLES

_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_POLICY: Final = (
    "CREATE ROW POLICY IF NOT EXISTS {name} ON {table} FOR SELECT USING {rows} TO {user}"
)


def render_grants(address: Address, tenant: str, user: str) -> list[str]:
    """Return the statements that let a user of the database read the rows of one tenant."""
    if not is_tenant(tenant):
        raise UsageError(f"{tenant[:80]!r}: not a valid tenant name.")
    if _USER.fullmatch(user) is None:
        raise UsageError(f"{user[:80]!r}: not a valid user (letters, digits, `_`, `.` and `-`).")
    if user == address.user:
        raise UsageError(f"{user}: the user of Vestige itself, which reads all tenants.")
    if _USER.fullmatch(address.user) is None:
        raise UsageError(f"{address.user[:80]!r}: not a valid user of Vestige.")
    statements = []
    for each in USER_TABLES:
        table = f"{address.database}.{each}"
        # A server may be set up so that a table with policies is empty for all other users.
        statements += [
            _POLICY.format(name="`vestige all`", table=table, rows="1", user=f"`{address.user}`"),
            _POLICY.format(
                name=f"`vestige {user}`", table=table, rows=f"tenant = '{tenant}'", user=f"`{user}`"
            ),
            f"GRANT SELECT ON {table} TO `{user}`",
        ]
    return statements
