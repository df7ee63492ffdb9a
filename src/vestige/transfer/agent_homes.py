"""The folders in which coding agents keep their sessions on this machine.

for home in find_agent_homes(os.environ):
    home.agent, home.path, list(home.find_sessions())
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vestige.formats import get_format
from vestige.formats.protocol import RowState

_EXTENSIONS: Final = {
    "saoudrizwan.claude-dev": "Cline",
    "rooveterinaryinc.roo-cline": "Roo Code",
    "kilocode.kilo-code": "Kilo Code",
}
SESSION_FORMATS: Final = frozenset(
    ["claude_code", "cline", "codex", "gemini_cli", "goose", "opencode", "openhands"]
)
"""Formats of the homes."""
_EDITORS: Final = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


@dataclass(frozen=True, slots=True)
class AgentHome:
    """A folder or database with the sessions of one agent."""

    agent: str
    """The name that users know."""
    format: str
    path: Path

    def find_sessions(self) -> Iterator[Path]:
        """Yield the path of each session, as the format names it."""
        yield from get_format(self.format).find_runs(self.path)

    def read_row_states(self) -> Mapping[str, RowState]:
        """Return the state of each session of a database; none for sessions in files."""
        return read_row_states(self.format, self.path)


def read_row_states(format: str, path: Path) -> Mapping[str, RowState]:
    """Return the state of each session in the database at a path; none if it is not one."""
    read = getattr(get_format(format), "read_row_states", None)
    states: Mapping[str, RowState] = {}
    return states if read is None else read(path)


def find_agent_homes(environment: Mapping[str, str]) -> list[AgentHome]:
    """Return the homes that exist. Nothing in them is opened."""
    user = Path(environment.get("HOME") or Path.home())

    def place(variable: str, *default: str) -> Path:
        value = environment.get(variable)
        return Path(value) if value else user.joinpath(*default)

    data = place("XDG_DATA_HOME", ".local", "share")
    database = environment.get("OPENCODE_DB")
    homes = [
        AgentHome("Claude Code", "claude_code", place("CLAUDE_CONFIG_DIR", ".claude")),
        AgentHome("Codex", "codex", place("CODEX_HOME", ".codex")),
        AgentHome("Gemini CLI", "gemini_cli", user / ".gemini"),
        AgentHome(
            "OpenCode",
            "opencode",
            Path(database) if database else data / "opencode" / "opencode.db",
        ),
        AgentHome("Kilo Code", "opencode", data / "kilo" / "kilo.db"),
        AgentHome("Goose", "goose", data / "goose" / "sessions"),
        AgentHome("Cline", "cline", user / ".cline" / "data"),
        AgentHome("OpenHands", "openhands", user / ".openhands"),
    ]
    config = (
        user / "Library" / "Application Support"
        if sys.platform == "darwin"
        else (place("XDG_CONFIG_HOME", ".config"))
    )
    for editor in _EDITORS:
        storage = config / editor / "User" / "globalStorage"
        homes += [
            AgentHome(agent, "cline", storage / extension / "tasks")
            for extension, agent in _EXTENSIONS.items()
        ]
    return [home for home in homes if _is_there(home.path.exists)]


def _is_there(exists: Callable[[], bool]) -> bool:
    try:
        return exists()
    except OSError:  # a folder that may not be entered
        return False
