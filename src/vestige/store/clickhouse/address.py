"""The address of a store: clickhouse://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE.

`clickhouses://` connects with TLS. The user and password may also come from the environment
(VESTIGE_CLICKHOUSE_USER, VESTIGE_CLICKHOUSE_PASSWORD), so that no address contains a password.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from vestige.errors import UsageError

SCHEMES: Final = ("clickhouse", "clickhouses")
_EXPECTED: Final = "expected clickhouse://HOST:8123/DATABASE"
_DATABASE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Address(msgspec.Struct, frozen=True):
    """The address of a store, and the user that reads it."""

    host: str
    port: int
    database: str
    secure: bool
    user: str
    password: str

    def __str__(self) -> str:
        """Return the address without user and password, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"clickhouse{'s' * self.secure}://{host}:{self.port}/{self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"


def is_address(location: object) -> bool:
    """Return whether a location is the address of a ClickHouse store."""
    return isinstance(location, str) and location.partition("://")[0].lower() in SCHEMES


def parse_address(text: str) -> Address:
    """Parse an address. Raise UsageError, without its password, if it is not valid."""
    shown = re.sub(r"//[^/@]*@", "//", text)[:200]
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"{shown}: not a valid address ({_EXPECTED}).") from None
    secure = parts.scheme.lower() == "clickhouses"
    database = parts.path.strip("/") or "vestige"
    if not is_address(text) or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{shown}: not a valid address ({_EXPECTED}).")
    if not _DATABASE.fullmatch(database):
        raise UsageError(
            f"{shown}: {database[:80]!r} is not a valid database name"
            " (expected up to 64 letters, digits and underscores)."
        )
    return Address(
        parts.hostname,
        port or (8443 if secure else 8123),
        database,
        secure,
        unquote(parts.username or "") or os.environ.get("VESTIGE_CLICKHOUSE_USER") or "default",
        unquote(parts.password or "") or os.environ.get("VESTIGE_CLICKHOUSE_PASSWORD") or "",
    )
