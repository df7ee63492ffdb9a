"""Sessions of OpenCode: rows of `~/.local/share/opencode/opencode.db`, also while it is live.

Reading:   detect.py, read.py
Mapping:   to_records.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vestige.formats.opencode import detect
from vestige.formats.protocol import Problem, RowState, RunToWrite, Source
from vestige.formats.session_files import refuse_writing, validate_source


def is_readable(path: Path) -> bool:
    return detect.is_session(path) or next(detect.find_sessions(path), None) is not None


def find_runs(path: Path) -> Iterator[Path]:
    if detect.is_session(path):
        yield path
    else:
        yield from detect.find_sessions(path)


def read_row_states(path: Path) -> Mapping[str, RowState]:
    """Return the state of each session of a database."""
    return detect.read_row_states(path)


def read_run(path: Path) -> Source:
    from vestige.formats.opencode.read import read_session

    return read_session(path)


def read_head(path: Path) -> Source | None:
    from vestige.formats.opencode.read import read_session_head

    return read_session_head(path)


def validate_run(path: Path) -> Sequence[Problem]:
    return validate_source(read_run(path))


def write_run(run: RunToWrite, target: Path) -> Path:
    raise refuse_writing("opencode")
