"""Find rollouts and trace bundles of Codex. Links are not followed.

    ~/.codex/                          sessions/ and archived_sessions/ in it
    sessions/YYYY/MM/DD/               rollout-<time>-<thread>.jsonl, or .jsonl.zst when it is old
    CODEX_ROLLOUT_TRACE_ROOT           trace-<id>-<thread>/{manifest.json,trace.jsonl,payloads/}

A sub-agent has a rollout of its own, which is read with the one of its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from vestige._runtime.clock import SYSTEM
from vestige.formats.codex.constants import MANIFEST, PREFIX, SESSIONS, SUFFIXES
from vestige.formats.line_reader import read_head
from vestige.formats.session_files import list_files, list_folders

_HEAD: Final = 4 * 1024
_DEPTH_MAX: Final = 4
_INDEXES_MAX: Final = 4
_RECENT_NS: Final = 2_000_000_000
"""Nanoseconds within which another file may leave the time of its folder as it is."""
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


def index_threads(root: Path) -> Mapping[str, Path]:
    """Return the rollouts below a folder, by their threads. Cached until a folder changes."""
    known = _indexes.get(root)
    if known is None or not known.is_current():
        if len(_indexes) >= _INDEXES_MAX:
            _indexes.clear()
        known = _indexes[root] = _ThreadIndex(root)
    return known.threads


class _ThreadIndex:
    """The rollouts below a folder, and the times of all folders."""

    def __init__(self, root: Path) -> None:
        self.threads: dict[str, Path] = {}
        self._changed_ns: dict[Path, int | None] = {}
        self._built_ns = SYSTEM.now_ns()
        self._visit(root, 0)

    def _visit(self, folder: Path, depth: int) -> None:
        self._changed_ns[folder] = _read_change(folder)
        for path in list_files(folder, *SUFFIXES):
            if path.name.startswith(PREFIX):
                self.threads[thread_of(path)] = path
        if depth < _DEPTH_MAX:
            for inner in list_folders(folder):
                self._visit(inner, depth + 1)

    def is_current(self) -> bool:
        """Return whether no folder has changed. One that was new may change within its time."""
        return all(
            changed_ns is not None
            and changed_ns == _read_change(folder)
            and self._built_ns - changed_ns > _RECENT_NS
            for folder, changed_ns in self._changed_ns.items()
        )


_indexes: dict[Path, _ThreadIndex] = {}


def _read_change(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
