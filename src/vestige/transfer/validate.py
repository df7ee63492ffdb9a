"""Validate anything that has a format: by the format's own rules, thing by thing.

for name, checked in validate_path(Path("tests/artifacts"), "seed"):
    checked.path, checked.valid, checked.problems
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import NotFoundError, UnreadableError
from vestige.formats import NAMES, artifacts
from vestige.formats.artifacts.rules import Profile
from vestige.formats.protocol import Format, Problem, ValidationResult
from vestige.transfer.import_runs import find_format


def validate_path(path: Path, profile: Profile = "seed") -> Iterator[tuple[str, ValidationResult]]:
    """(format, what was found) of each thing at a path. NotFoundError: there is nothing."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    name, reader = _find_validator(path)
    if reader is None:
        # Profiles are a matter of bundles alone; the other formats have one set of rules.
        for checked in artifacts.validate_profile(path, profile):
            yield name, checked
        return
    for place in reader.find_runs(path):
        yield name, ValidationResult(str(place), 1, _check(reader, place))


def _find_validator(path: Path) -> tuple[str, Format | None]:
    found = find_format(path)
    if found is not None:
        name, reader = found
        return name, None if name == "artifacts" else reader
    if path.is_dir() or path.suffix == ".zip":
        return "artifacts", None  # perhaps what is missing is what it would be known by
    raise NotFoundError(f"{path}: nothing to validate (expected one of: {', '.join(NAMES)}).")


def _check(reader: Format, place: Path) -> list[Problem]:
    try:
        return list(reader.validate_run(place))
    except UnreadableError as error:
        return [Problem(str(place), "", "unreadable", str(error))]
