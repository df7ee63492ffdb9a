"""Write a run as one trajectory file."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import UsageError
from vestige.formats.atif.constants import SUFFIX
from vestige.formats.atif.from_records import run_to_trajectory
from vestige.formats.atomic_file import create_file, resolve_target
from vestige.formats.protocol import RunToWrite
from vestige.formats.record_builder import encode_json
from vestige.record.run_id import file_name_of


def write_trajectory(source: RunToWrite, target: Path) -> Path:
    """Write to a new file, or into an existing folder. Return the path."""
    path = resolve_target(target, f"{file_name_of(source.run.info.id)}{SUFFIX}")
    if not source.run.spans:
        raise UsageError(f"run {source.run.info.id}: has no spans, so it has no steps.")
    document = run_to_trajectory(source)
    with create_file(path) as file:
        file.write(encode_json(document).encode() + b"\n")
    return path
