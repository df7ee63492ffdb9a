"""Names of Goose's database and of the files of its older versions."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "goose"
AGENT: Final = "goose"
DATABASE: Final = "sessions.db"
SUFFIX: Final = ".jsonl"
NUMBER_SEPARATOR: Final = "#"
SESSION_TABLE: Final = "sessions"
MESSAGE_TABLE: Final = "messages"
MESSAGE_COLUMNS: Final = frozenset(["session_id", "role", "content_json", "created_timestamp"])
SUBAGENT: Final = "sub_agent"
"""Type of a session that a sub-agent has."""
