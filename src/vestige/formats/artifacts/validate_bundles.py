"""Validate the bundles at a path: one bundle, a tree of them, or a zip.

for checked in check_path(Path("tests/artifacts"), "seed"): checked.path, checked.problems
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import NotFoundError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.detect import find_places
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.read import (
    DirectoryTree,
    UnreadablePartError,
    ZipTree,
    open_zip,
    zip_prefixes,
)
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.validation_rules import Profile
from vestige.formats.protocol import ValidationResult


def check_path(path: Path, profile: Profile = "seed") -> Iterator[ValidationResult]:
    """Validate every bundle at a path. Raise NotFoundError if there are none."""
    if path.is_dir():
        yield from _check_directory(path, profile)
    elif path.name == constants.BUNDLE:
        yield _check_one(path.parent, profile)
    else:
        yield from _check_zip(path, profile)


def _check_directory(path: Path, profile: Profile) -> Iterator[ValidationResult]:
    places = find_places(path)
    if not places.bundles:
        raise NotFoundError(
            f"{path}: no bundle in it (expected {constants.BUNDLE}, or a tree of "
            f"<suite>/<timestamp>/)."
        )
    for bundle in places.bundles:
        yield _check_one(bundle, profile)
    for suite in places.without:
        report = Report(str(suite), profile)
        report.add("suite-without-bundle", "", "no bundle in it.")
        yield ValidationResult(str(suite), 0, report.problems())


def _check_one(path: Path, profile: Profile) -> ValidationResult:
    count, problems = check_bundle(DirectoryTree(path), profile)
    return ValidationResult(str(path), count, problems)


def _check_zip(path: Path, profile: Profile) -> Iterator[ValidationResult]:
    report = Report(str(path), profile)
    try:
        archive = open_zip(path)
    except UnreadablePartError as error:
        report.add(error.rule, "", error.message)
        yield ValidationResult(str(path), 0, report.problems())
        return
    with archive:
        prefixes = zip_prefixes(archive)
        for name in archive.namelist():
            fault = constants.fault_of_path(name)
            if fault is not None and "" not in prefixes:
                report.add("zip-name", name, f"the name {fault}.")
        if not prefixes:
            report.add("bundle-missing", constants.BUNDLE, "is not in the archive.")
        if report.problems():
            yield ValidationResult(str(path), 0, report.problems())
        for prefix, files in prefixes.items():
            name = f"{path}/{prefix}".rstrip("/")
            yield ValidationResult(
                name, *check_bundle(ZipTree(archive, prefix, files, name), profile)
            )
