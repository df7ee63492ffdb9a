"""Find bundles: test whether a path is one, and list those in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from vestige.limits import KIB

LATER_ROOT: Final = "debug_bundle/"
LATER_MANIFEST: Final = LATER_ROOT + "manifest.json"
"""A member of the later real format (formats/wink/other_layouts.py)."""

_TAIL: Final = 66 * KIB
_SEEN_MAX: Final = 2_000
"""Entries of a folder that are looked at to tell what it is; all are, once bundles are wanted."""


def is_readable(path: Path) -> bool:
    """Return whether a path is a bundle, a file of snapshots, or a folder of them. Never raises."""
    try:
        if path.is_dir():
            return next(_inside(path, _SEEN_MAX), None) is not None
        return path.is_file() and _is_bundle(path)
    except OSError:
        return False


def find_runs(path: Path) -> Iterator[Path]:
    """Return the bundle at a path, or those in a folder, oldest first."""
    if path.is_dir():
        yield from sorted(_inside(path), key=lambda each: (_modified(each), each.name))
    else:
        yield path


def find_latest(folder: Path) -> Path | None:
    """Return the most recent bundle or file of snapshots in a folder."""
    return max(_inside(folder), key=lambda each: (_modified(each), each.name), default=None)


def _inside(folder: Path, most: int | None = None) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, most):
            path = Path(entry.path)
            if path.suffix in (".wink", ".jsonl", ".zip") and _looks_like_one(entry, path):
                yield path


def _looks_like_one(entry: os.DirEntry[str], path: Path) -> bool:
    try:
        return entry.is_file() and _is_bundle(path)
    except OSError:  # an unreadable one must not hide the others
        return path.suffix == ".wink"


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_bundle(path: Path) -> bool:
    if path.suffix == ".wink":
        return True  # whatever is in it: the reader says what is wrong
    if path.suffix == ".jsonl":
        return _has_snapshots(path)
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
        file.seek(max(0, path.stat().st_size - _TAIL))
        tail = file.read(_TAIL)
    seed = all(name in tail for name in (b"manifest.json", b"snapshots.jsonl", b"logs.jsonl"))
    return seed or LATER_MANIFEST.encode() in tail


def _has_snapshots(path: Path) -> bool:
    """Check for the first or last keys of a snapshot. A line may have megabytes."""
    with path.open("rb") as file:
        head = file.read(64 * KIB)
    if not head.lstrip().startswith(b"{"):
        return False
    first = head.split(b"\n")[0]
    if b'"timestamp"' in first and b'"logger"' in first:
        return False
    return b'"slices"' in first and (b'"created_at"' in first or len(first) == len(head))
