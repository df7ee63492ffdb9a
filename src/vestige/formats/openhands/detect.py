"""Find conversations of OpenHands. Links are not followed.

~/.openhands/conversations/<id>/     base_state.json, events/event-00000-<id>.json, subagents/
~/.openhands/sessions/<id>/          events/0.json, 1.json, ... (version 0)
trajectory.json                      a list of events (version 0)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.line_reader import read_head
from vestige.formats.openhands.constants import CONVERSATIONS, EVENTS, SESSIONS, STATE, SUBAGENTS
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 16 * 1024
_NAME: Final = re.compile(r"(?:event-)?(\d{1,9})(?:-[0-9a-fA-F-]{8,64})?\.json")
_SOURCE: Final = re.compile(rb'"source"\s*:\s*"(?:user|agent|environment)"')
_KIND: Final = re.compile(rb'"(?:action|observation)"\s*:\s*"[a-z_]+"')


def is_session(path: Path) -> bool:
    """Return whether a path is the folder of a conversation, or a trajectory."""
    if path.is_symlink():
        return False
    return is_conversation(path) if path.is_dir() else is_trajectory(path)


def is_conversation(folder: Path) -> bool:
    """Return whether a folder has events."""
    events = folder / EVENTS
    if events.is_symlink() or not events.is_dir():
        return False
    first = next(iter_events(folder), None)
    if first is None:
        return False
    head = read_head(first, _HEAD)
    return _SOURCE.search(head) is not None and b'"timestamp"' in head


def is_trajectory(path: Path) -> bool:
    """Return whether a file begins like the list of events of version 0."""
    if path.suffix != ".json" or not path.is_file():
        return False
    head = read_head(path, _HEAD)
    is_list = head.lstrip()[:1] == b"["
    return is_list and _SOURCE.search(head) is not None and _KIND.search(head) is not None


def is_current(folder: Path) -> bool:
    """Return whether a conversation is of version 1."""
    return (folder / STATE).is_file()


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield the conversations and trajectories of a folder, or of OpenHands' home."""
    yield from (file for file in list_files(path, ".json") if is_trajectory(file))
    for folder in (path, path / CONVERSATIONS, path / SESSIONS):
        if not folder.is_symlink():
            yield from (inner for inner in list_folders(folder) if is_conversation(inner))


def iter_events(folder: Path) -> Iterator[Path]:
    """Yield the files of a conversation's events, in order."""
    numbered = [
        (int(found[1]), path)
        for path in list_files(folder / EVENTS, ".json")
        if (found := _NAME.fullmatch(path.name))
    ]
    yield from (path for _, path in sorted(numbered))


def find_subagents(folder: Path) -> list[Path]:
    """Return the conversations of a conversation's sub-agents."""
    inner = folder / SUBAGENTS
    if inner.is_symlink():
        return []
    return [path for path in list_folders(inner) if is_conversation(path)]


def list_parts(path: Path) -> list[Path]:
    """Return the files and folders that change with a conversation."""
    if path.is_file():
        return [path]
    parts = [path / EVENTS, path / STATE]
    for inner in find_subagents(path):
        parts += (inner / EVENTS, inner / STATE)
    return parts
