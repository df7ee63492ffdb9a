"""Find sessions of Claude Code. Links are not followed.

~/.claude/                       projects/ in it
projects/                        a folder for each working directory
projects/<project>/              <session>.jsonl, and a folder <session>/ for sub-agents
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.claude_code.constants import PROJECTS, SUBAGENTS, SUFFIX
from vestige.formats.line_reader import read_head
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 64 * 1024
_ENTRY: Final = re.compile(rb'"(?:sessionId|leafUuid)"\s*:')
_TYPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:user|assistant|system|summary|queue-operation|file-history-snapshot|mode|'
    rb'last-prompt|attachment|ai-title|custom-title)"'
)


def is_session(path: Path) -> bool:
    """Return whether a file begins like a session."""
    if path.suffix != SUFFIX or path.is_symlink() or not path.is_file():
        return False
    head = read_head(path, _HEAD)
    if b'"projectHash"' in head[:1_000]:  # Gemini CLI's entries are similar
        return False
    return _ENTRY.search(head) is not None and _TYPE.search(head) is not None


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield the sessions of a project, of several, or of a configuration folder."""
    projects = path / PROJECTS
    if projects.is_dir() and not projects.is_symlink():
        path = projects
    yield from _sessions_in(path)
    for folder in list_folders(path):
        yield from _sessions_in(folder)


def _sessions_in(folder: Path) -> Iterator[Path]:
    yield from (path for path in list_files(folder, SUFFIX) if is_session(path))


def find_subagents(session: Path) -> list[Path]:
    """Return the sessions of a session's sub-agents, also of their sub-agents."""
    folder = session.with_suffix("") / SUBAGENTS
    found = list(list_files(folder, SUFFIX))
    for inner in list_folders(folder):  # workflows have folders of their own
        found += list_files(inner, SUFFIX)
    return [path for path in found if path.name.startswith("agent-")]
