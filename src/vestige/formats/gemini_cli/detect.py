"""Find sessions of Gemini CLI. Links are not followed.

~/.gemini/                       tmp/ in it
tmp/<project>/chats/             session-<time>-<id>.jsonl
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.gemini_cli.constants import CHATS, PREFIX, SUFFIX, TMP
from vestige.formats.line_reader import read_head
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 4 * 1024


def is_session(path: Path) -> bool:
    """Return whether a file begins like a session."""
    if path.suffix != SUFFIX or path.is_symlink() or not path.is_file():
        return False
    head = read_head(path, _HEAD)
    return b'"sessionId"' in head and b'"projectHash"' in head


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield the sessions of a folder of chats, of a project, or of all projects."""
    projects = path / TMP
    if projects.is_dir() and not projects.is_symlink():
        path = projects
    for folder in (path, path / CHATS, *(inner / CHATS for inner in list_folders(path))):
        if folder.is_symlink():
            continue
        for file in list_files(folder, SUFFIX):
            if file.name.startswith(PREFIX) and is_session(file):
                yield file
