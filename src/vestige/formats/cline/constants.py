"""Names of files of Cline, Roo Code and Kilo Code."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "cline"
AGENT: Final = "cline"
AGENTS: Final = {"rooveterinaryinc.roo-cline": "roo-code", "kilocode.kilo-code": "kilo-code"}
"""Agents by the folder of their extension; of others, it is Cline."""
HISTORY: Final = "api_conversation_history.json"
UI_MESSAGES: Final = "ui_messages.json"
MESSAGES: Final = ".messages.json"
"""Suffix of a session of the command line, and of its sub-agents."""
SUBAGENT_PREFIX: Final = "agent_"
SPAWN: Final = "spawn_agent"
