"""Names of files and events of OpenHands."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "openhands"
AGENT: Final = "openhands"
STATE: Final = "base_state.json"
EVENTS: Final = "events"
SUBAGENTS: Final = "subagents"
CONVERSATIONS: Final = "conversations"
SESSIONS: Final = "sessions"
TASK: Final = "task"
"""Tool that starts a sub-agent."""
FINISH: Final = "finish"
EVENT_MAX: Final = 64 * 1024 * 1024
"""Bytes of the file of one event."""
