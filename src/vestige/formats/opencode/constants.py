"""Names of OpenCode's database."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "opencode"
DATABASES: Final = {"opencode.db": "opencode", "kilo.db": "kilo"}
"""Agents by their databases. Kilo Code's command line is made from OpenCode, and has the same
tables."""
NUMBER_SEPARATOR: Final = "#"
TABLES: Final = frozenset(["session", "message", "part"])
