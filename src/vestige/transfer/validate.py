"""Validate runs and bundles by the rules of their format.

for format, checked in validate_path(Path("tests/artifacts"), "seed"):
    checked.path, checked.valid, checked.problems
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import NotFoundError, UnreadableError
from vestige.formats import NAMES, artifacts
from vestige.formats.artifacts.validation_rules import Profile
from vestige.formats.protocol import Format, Problem, ValidationResult
from vestige.transfer.import_runs import find_format


def validate_path(path: Path, profile: Profile = "seed") -> Iterator[tuple[str, ValidationResult]]:
    """Yield the format and the result of each run or bundle at a path.

    Raise NotFoundError if there is nothing to validate.
    """
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    name, reader = _find_validator(path)
    if reader is None:
        # Only artifact bundles have profiles. Other formats have one set of rules.
        for checked in artifacts.validate_profile(path, profile):
            yield name, checked
        return
    for run_path in reader.find_runs(path):
        yield name, ValidationResult(str(run_path), 1, _validate_run(reader, run_path))


def _find_validator(path: Path) -> tuple[str, Format | None]:
    found = find_format(path)
    if found is not None:
        name, reader = found
        return name, None if name == "artifacts" else reader
    if path.is_dir() or path.suffix == ".zip":
        # Perhaps a bundle without the file by which it is detected.
        return "artifacts", None
    raise NotFoundError(f"{path}: unsupported format (expected one of: {', '.join(NAMES)}).")


def _validate_run(reader: Format, path: Path) -> list[Problem]:
    try:
        return list(reader.validate_run(path))
    except UnreadableError as error:
        return [Problem(str(path), "", "unreadable", str(error))]
