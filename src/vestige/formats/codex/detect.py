"""Find rollouts and trace bundles of Codex. Links are not followed.

    ~/.codex/                          sessions/ and archived_sessions/ in it
    sessions/YYYY/MM/DD/               rollout-<time>-<thread>.jsonl, or .jsonl.zst when it is old
    CODEX_ROLLOUT_TRACE_ROOT           trace-<id>-<thread>/{manifest.json,trace.jsonl,payloads/}

A sub-agent has a rollout of its own, which is read with the one of its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from vestige.formats.codex.constants import MANIFEST, PREFIX, SESSIONS, SUFFIXES
from vestige.formats.line_reader import read_head
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 4 * 1024
_DEPTH_MAX: Final = 4
_META: Final = re.compile(rb'"type"\s*:\s*"session_meta"')
_THREAD: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PARENT: Final = re.compile(rb'"parent_thread_id"\s*:\s*"([0-9a-f-]{36})"')


def is_session(path: Path) -> bool:
    return is_rollout(path) or is_trace(path)


def is_rollout(path: Path) -> bool:
    """Return whether a file begins like a rollout."""
    if not path.name.endswith(SUFFIXES) or path.is_symlink() or not path.is_file():
        return False
    return _META.search(read_head(path, _HEAD)) is not None


def is_trace(path: Path) -> bool:
    """Return whether a folder is a trace bundle."""
    if path.is_symlink() or not (path / MANIFEST).is_file():
        return False
    return b'"rollout_id"' in read_head(path / MANIFEST, _HEAD)


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield the rollouts and trace bundles of a folder, without those of sub-agents."""
    folders = [path / name for name in SESSIONS if (path / name).is_dir()]
    for folder in folders or [path]:
        if not folder.is_symlink():
            yield from _walk(folder, folder)


def _walk(folder: Path, root: Path, depth: int = 0) -> Iterator[Path]:
    for path in list_files(folder, *SUFFIXES):
        if path.name.startswith(PREFIX) and is_rollout(path):
            parent = find_parent(path)
            if parent is None or parent not in index_threads(root):
                yield path
    for inner in list_folders(folder):
        if is_trace(inner):
            yield inner
        elif depth < _DEPTH_MAX:
            yield from _walk(inner, root, depth + 1)


def find_parent(path: Path) -> str | None:
    """Return the thread that started a sub-agent."""
    found = _PARENT.search(read_head(path, _HEAD))
    return found[1].decode() if found else None


def thread_of(path: Path) -> str:
    """Return the id of the thread in the name of a rollout."""
    found = _THREAD.findall(path.name)
    return found[-1] if found else path.name.partition(".")[0]


def find_root(path: Path) -> Path:
    """Return the folder `sessions` of a rollout, or its own folder."""
    for parent in list(path.absolute().parents)[:_DEPTH_MAX]:
        if parent.name in SESSIONS:
            return parent
    return path.absolute().parent


@lru_cache(maxsize=4)
def index_threads(root: Path) -> dict[str, Path]:
    """Return the rollouts below a folder, by their threads."""
    found: dict[str, Path] = {}

    def visit(folder: Path, depth: int) -> None:
        for path in list_files(folder, *SUFFIXES):
            if path.name.startswith(PREFIX):
                found[thread_of(path)] = path
        if depth < _DEPTH_MAX:
            for inner in list_folders(folder):
                visit(inner, depth + 1)

    visit(root, 0)
    return found
