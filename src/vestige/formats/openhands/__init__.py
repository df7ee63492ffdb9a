"""Conversations of OpenHands: folders of events, and trajectories of its version 0.

Reading:   detect.py, read.py
Mapping:   to_records.py (version 1), version_0_events.py (version 0)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.openhands import detect
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
    """Return files and folders whose times change when a conversation grows."""
    return detect.list_parts(path)


def read_run(path: Path) -> Source:
    from vestige.formats.openhands.read import read_conversation

    return read_conversation(path)


def validate_run(path: Path) -> Sequence[Problem]:
    return validate_source(read_run(path))


def write_run(run: RunToWrite, target: Path) -> Path:
    raise refuse_writing("openhands")
