"""Sessions of Cline, and tasks of its VS Code extension and of Roo Code and Kilo Code.

Reading:   detect.py, read.py, request_usage.py (tokens of a task)
Mapping:   to_records.py, xml_calls.py (tool calls of older versions)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.cline import detect
from vestige.formats.protocol import Problem, RunToWrite, Source
from vestige.formats.session_files import refuse_writing, validate_source


def is_readable(path: Path) -> bool:
    return detect.is_session(path) or next(detect.find_sessions(path), None) is not None


def find_runs(path: Path) -> Iterator[Path]:
    if detect.is_session(path):
        yield path
    else:
        yield from detect.find_sessions(path)


def list_parts(path: Path) -> list[Path]:
    """Return the files of a session: its own, those of sub-agents, and the tokens of a task."""
    return detect.list_parts(path)


def read_run(path: Path) -> Source:
    from vestige.formats.cline.read import read_session

    return read_session(path)


def validate_run(path: Path) -> Sequence[Problem]:
    return validate_source(read_run(path))


def write_run(run: RunToWrite, target: Path) -> Path:
    raise refuse_writing("cline")
