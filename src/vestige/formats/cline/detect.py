"""Find sessions of Cline and tasks of VS Code extensions. Links are not followed.

~/.cline/data/sessions/<id>/         <id>.messages.json, agent_<id>.messages.json
globalStorage/<extension>/tasks/     <id>/api_conversation_history.json, ui_messages.json
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.cline.constants import (
    AGENT,
    AGENTS,
    HISTORY,
    MESSAGES,
    SUBAGENT_PREFIX,
    UI_MESSAGES,
)
from vestige.formats.line_reader import read_head
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 4 * 1024
_INNER: Final = ("", "tasks", "sessions", "data/sessions", "data/tasks")
"""Folders of sessions in a folder of Cline's."""


def is_session(path: Path) -> bool:
    """Return whether a file begins like a session or a task."""
    if path.is_symlink() or not path.is_file():
        return False
    head = read_head(path, _HEAD)
    if path.name == HISTORY:
        return head.lstrip()[:1] == b"["
    if not path.name.endswith(MESSAGES):
        return False
    return b'"sessionId"' in head and b'"messages"' in head


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield the sessions of a folder of sessions, of a session, or of Cline's data."""
    yield from _sessions_in(path)
    for name in _INNER:
        folder = path / name
        if not folder.is_symlink():
            for inner in list_folders(folder):
                yield from _sessions_in(inner)


def _sessions_in(folder: Path) -> Iterator[Path]:
    for file in list_files(folder, HISTORY, MESSAGES):
        is_own = file.name == HISTORY or file.name == f"{folder.name}{MESSAGES}"
        if is_own and is_session(file):
            yield file


def find_subagents(path: Path) -> list[Path]:
    """Return the sessions of a session's sub-agents."""
    if path.name == HISTORY:
        return []
    files = list_files(path.parent, MESSAGES)
    return [file for file in files if file != path and file.name.startswith(SUBAGENT_PREFIX)]


def list_parts(path: Path) -> list[Path]:
    """Return the files that a session consists of."""
    beside = path.with_name(UI_MESSAGES)
    return [path, *([beside] if path.name == HISTORY else find_subagents(path))]


def find_agent(path: Path) -> str:
    """Return the agent that wrote a task, by the folder of its extension."""
    return next((AGENTS[each.name] for each in path.parents if each.name in AGENTS), AGENT)
