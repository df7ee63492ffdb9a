"""Who may ask for what: keys, scopes, tenants. Kept in the home, not in the store."""

from __future__ import annotations

from dataclasses import dataclass

from vestige.home import Home

SCOPES = ("runs:read", "runs:write", "debug-bundle:read")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    key_id: str
    tenant: str | None
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class Keys:
    """The keys of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def find(self, secret: str, now_ns: int) -> Principal | None:
        return None

    def list(self) -> list[object]:
        return []
