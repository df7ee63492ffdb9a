"""Artifact bundles: the verified evidence of a test suite, as a directory.

A bundle is `<root>/<suite>/<timestamp>/` with a `bundle.json` that lists every file and its hash.
A suite becomes a run, a case a span of type `test`. The files of a killed suite are read as an
interrupted run.

Elsewhere: the rules in validation_rules.py; the layout in constants.py; the typed files in
file_structs.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zipfile import ZipFile

    from vestige.formats.artifacts.validation_rules import Profile
    from vestige.formats.protocol import Problem, RunToWrite, Source, ValidationResult
    from vestige.record.types import KnownRecord

__all__ = [
    "find_runs",
    "is_readable",
    "read_run",
    "validate_profile",
    "validate_run",
    "write_run",
]


def is_readable(path: Path) -> bool:
    """Return whether a path is a bundle, a folder of bundles, or a zip with one. Never raises."""
    from vestige.formats.artifacts import detect

    try:
        return detect.sniff_directory(path) if path.is_dir() else detect.sniff_file(path)
    except (OSError, ValueError):
        return False


def validate_run(path: Path) -> Sequence[Problem]:
    """Return all findings, by the profile `seed`."""
    return [problem for checked in validate_profile(path, "seed") for problem in checked.problems]


def validate_profile(path: Path, profile: Profile) -> Iterator[ValidationResult]:
    """Validate each bundle by the rules of a profile."""
    from vestige.formats.artifacts.validate_bundles import check_path

    return check_path(path, profile)


def find_runs(path: Path) -> Iterator[Path]:
    """Return the bundles at a path, including those of killed suites; an archive as it is."""
    from vestige.formats.artifacts import detect

    if path.is_dir():
        yield from (place for place in detect.find_places(path).bundles if detect.is_bundle(place))
    else:
        yield path.parent if path.name == "bundle.json" else path


def read_run(path: Path) -> Source:
    """Read one bundle as the run of a suite."""
    from vestige.errors import UnreadableError
    from vestige.formats.artifacts.read import (
        DirectoryTree,
        UnreadablePartError,
        ZipTree,
        open_zip,
        zip_prefixes,
    )
    from vestige.formats.artifacts.to_records import read_tree

    if path.is_dir():
        return read_tree(DirectoryTree(path))
    try:
        archive = open_zip(path)
    except UnreadablePartError as error:
        raise UnreadableError(f"{path}: {error.message}") from None
    prefixes = zip_prefixes(archive)
    if len(prefixes) != 1:
        archive.close()
        raise UnreadableError(f"{path}: {len(prefixes)} bundles in it (expected one). Unpack it.")
    ((prefix, files),) = prefixes.items()
    source = read_tree(ZipTree(archive, prefix, files, str(path)))
    source.records = _closing(archive, source.records)
    return source


def _closing(archive: ZipFile, records: Iterator[KnownRecord]) -> Iterator[KnownRecord]:
    with archive:
        yield from records


def write_run(run: RunToWrite, target: Path) -> Path:
    """Write a run with `test` spans as a bundle."""
    from vestige.formats.artifacts.from_records import write_run

    return write_run(run, target)
