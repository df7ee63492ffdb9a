"""Names of OpenCode's database."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "opencode"
AGENT: Final = "opencode"
DATABASE: Final = "opencode.db"
NUMBER_SEPARATOR: Final = "#"
TABLES: Final = frozenset(["session", "message", "part"])
