"""Find the bundles of a path: the path itself, a folder of them, or a zip.

A tree is `<root>/<suite>/<timestamp>/`. A directory is a bundle when it holds a `bundle.json`, and
is meant to be one when it holds a trace or is named like one: then the bundle.json is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import SCHEMA_NAME
from vestige.limits import ARTIFACT_FILES_MAX

DEPTH_MAX: Final = 4
"""Folders below the path in which bundles are looked for: a root, suites, timestamps, and one
more."""

SNIFF_MAX: Final = 500
"""Folders that are looked at to see whether a path is a tree of bundles."""

SNIFFED_BYTES: Final = 64 * 1024
ZIP_MAGIC: Final = b"PK\x03\x04"


class Places(msgspec.Struct):
    """The kind of content of a directory."""

    bundles: list[Path] = msgspec.field(default_factory=list)
    """Bundles, and folders that are meant to be bundles."""
    without: list[Path] = msgspec.field(default_factory=list)
    """Suites of a tree in which there is none."""


def is_bundle(path: Path) -> bool:
    """Return whether a folder is a bundle, or what a killed suite left of one."""
    return (path / constants.BUNDLE).is_file() or (path / constants.TRACE).is_file()


def is_meant_as_bundle(path: Path) -> bool:
    """Return whether a folder is a bundle, or looks like an attempt at one."""
    if os.path.lexists(path / constants.BUNDLE) or (path / constants.TRACE).is_file():
        return True
    if constants.SEED_TIMESTAMP.fullmatch(path.name):
        return True
    return sum((path / part.path).is_file() for part in constants.PARTS) >= 3


def find_places(path: Path) -> Places:
    """Return every bundle at or below a directory."""
    found = Places()
    if is_meant_as_bundle(path):
        found.bundles.append(path)
        return found
    suites = []
    for suite in folders(path):
        own = list(_below(suite, DEPTH_MAX - 1))
        found.bundles.extend(own)
        suites.append((suite, bool(own)))
    if found.bundles:
        found.without = [suite for suite, has in suites if not has]
    return found


def _below(path: Path, depth: int) -> Iterator[Path]:
    if is_meant_as_bundle(path):
        yield path
    elif depth > 0:
        for folder in folders(path):
            yield from _below(folder, depth - 1)


def folders(path: Path, limit: int = ARTIFACT_FILES_MAX) -> list[Path]:
    """Return the folders in a folder, by name, without hidden ones and symlinks."""
    try:
        with os.scandir(path) as entries:
            names = [
                entry.name
                for entry, _ in zip(entries, range(limit), strict=False)
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            ]
    except OSError:
        return []
    return [path / name for name in sorted(names)]


def sniff_directory(path: Path) -> bool:
    """Return whether a bundle is at this path, or in a tree below it. Cheap."""
    if is_bundle(path):
        return True
    left = SNIFF_MAX
    waiting = [path]
    for _ in range(DEPTH_MAX):
        deeper: list[Path] = []
        for folder in waiting:
            deeper.extend(folders(folder, SNIFF_MAX))
            left -= 1
            if left <= 0:
                break
        waiting = deeper[:left]
        if any(is_bundle(folder) for folder in waiting):
            return True
        if left <= 0:
            break
    return False


def sniff_file(path: Path) -> bool:
    """Return whether a file is a zip with a bundle, or a `bundle.json`."""
    with open(path, "rb") as file:
        start = file.read(SNIFFED_BYTES)
    if path.name == constants.BUNDLE:
        return SCHEMA_NAME.encode() in start
    if not start.startswith(ZIP_MAGIC):
        return False
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except Exception:  # noqa: BLE001  # whatever a damaged archive does: it is none of ours
        return False
    for name in names:
        if name == constants.BUNDLE or name.endswith(f"/{constants.BUNDLE}"):
            prefix = name[: -len(constants.BUNDLE)]
            if any(prefix + part.path in names for part in constants.PARTS):
                return True
    return False
