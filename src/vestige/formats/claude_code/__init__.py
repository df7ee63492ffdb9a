"""Sessions of Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, with sub-agents.

Reading:   detect.py (sessions of a file, a project or `~/.claude`), read.py (one session)
Mapping:   to_records.py; result_files.py (long results in files of their own)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.claude_code import detect
from vestige.formats.protocol import Problem, RunToWrite, Source
from vestige.formats.session_files import refuse_writing, validate_source


def is_readable(path: Path) -> bool:
    return detect.is_session(path) or next(detect.find_sessions(path), None) is not None


def find_runs(path: Path) -> Iterator[Path]:
    if detect.is_session(path):
        yield path
    else:
        yield from detect.find_sessions(path)


def read_run(path: Path) -> Source:
    from vestige.formats.claude_code.read import read_session

    return read_session(path)


def read_head(path: Path) -> Source | None:
    from vestige.formats.claude_code.read import read_session_head

    return read_session_head(path)


def validate_run(path: Path) -> Sequence[Problem]:
    return validate_source(read_run(path))


def write_run(run: RunToWrite, target: Path) -> Path:
    raise refuse_writing("claude_code")
