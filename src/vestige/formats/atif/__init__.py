"""Agent trajectories (ATIF): one JSON document per run, as Harbor and NeMo write them.

Reading:     detect.py (which files), read.py (one trajectory as a run)
Mapping:     to_records.py (steps as model calls, tools and sub-agents), content.py
Writing:     from_records.py (a run as steps), write.py
Validation:  validate.py (the rules of versions 1.0 to 1.8)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.protocol import Problem, RunToWrite, Source


def is_readable(path: Path) -> bool:
    """Return whether the file, or a file in the folder, is a trajectory."""
    from vestige.formats.atif.detect import has_trajectory

    return has_trajectory(path)


def find_runs(path: Path) -> Iterator[Path]:
    """Yield the file, or every trajectory in the folder and below."""
    from vestige.formats.atif.detect import find_trajectories

    yield from find_trajectories(path)


def read_run(path: Path) -> Source:
    from vestige.formats.atif.read import read_trajectory

    return read_trajectory(path)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.atif.validate import validate_path

    return validate_path(path)


def write_run(run: RunToWrite, target: Path) -> Path:
    """Write the run to the target, which is a new file or an existing folder."""
    from vestige.formats.atif.write import write_trajectory

    return write_trajectory(run, target)
