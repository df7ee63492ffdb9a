"""Sessions of Codex: rollouts, `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl[.zst]`, and traces.

Reading:   detect.py (rollouts and trace bundles), read.py (a rollout), read_trace.py (a bundle)
Mapping:   to_records.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.codex import detect
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
    if path.is_dir():
        from vestige.formats.codex.read_trace import read_trace

        return read_trace(path)
    from vestige.formats.codex.read import read_rollout

    return read_rollout(path)


def read_head(path: Path) -> Source | None:
    from vestige.formats.codex.read import read_rollout_head

    return read_rollout_head(path)


def validate_run(path: Path) -> Sequence[Problem]:
    return validate_source(read_run(path))


def write_run(run: RunToWrite, target: Path) -> Path:
    raise refuse_writing("codex")
