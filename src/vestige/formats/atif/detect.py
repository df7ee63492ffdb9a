"""Find trajectories: JSON files whose `schema_version` begins with `ATIF-v`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.bounded_lines import BOM
from vestige.limits import FOREIGN_RUNS_MAX

_SNIFF_BYTES: Final = 64 * 1024
_SIGNATURE: Final = b'"ATIF-v'
_SUFFIX: Final = ".json"
_FOLDERS_MAX: Final = 20_000
_DEPTH_MAX: Final = 6
"""Levels of folders: jobs, a job, a trial, its agent, and its logs."""
_SNIFFED_MAX: Final = 200
"""Files that are sniffed before a folder counts as one without trajectories."""


def has_trajectory(path: Path) -> bool:
    """Return whether a path is a trajectory or a folder with one. Bounded work; never raises."""
    try:
        if path.is_file():
            return is_trajectory(path)
        if not path.is_dir():
            return False
        files = (file for _, file in zip(range(_SNIFFED_MAX), _iter_files(path), strict=False))
        return any(map(is_trajectory, files))
    except OSError:
        return False


def is_trajectory(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_SNIFF_BYTES)
            if not head.removeprefix(BOM).lstrip().startswith(b"{"):
                return False
            file.seek(max(0, path.stat().st_size - _SNIFF_BYTES))
            return _SIGNATURE in head or _SIGNATURE in file.read(_SNIFF_BYTES)
    except OSError:
        return False


def find_trajectories(path: Path) -> Iterator[Path]:
    """Yield the file, or the trajectories of a folder that no other one there refers to."""
    if not path.is_dir():
        yield path
        return
    from vestige.formats.atif.read import find_referenced_files

    by_folder: dict[Path, list[Path]] = {}
    count = 0
    for file in _iter_files(path):
        if is_trajectory(file):
            by_folder.setdefault(file.parent, []).append(file)
            count += 1
            if count >= FOREIGN_RUNS_MAX:
                break
    for files in by_folder.values():
        inside: set[Path] = set()
        if len(files) > 1:
            inside = {found for file in files for found in find_referenced_files(file)}
        yield from sorted(file for file in files if file.resolve() not in inside)


def _iter_files(folder: Path) -> Iterator[Path]:
    """Yield the JSON files of a folder and of those below it. Links are not followed."""
    base = len(folder.parts)
    for index, (root, folders, names) in enumerate(os.walk(folder)):
        if index >= _FOLDERS_MAX:
            return
        place = Path(root)
        if len(place.parts) - base >= _DEPTH_MAX:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (place / name for name in sorted(names) if name.endswith(_SUFFIX))
