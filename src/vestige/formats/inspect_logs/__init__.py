"""Logs of Inspect evaluations (`.eval` and `.json`): each sample and epoch is a run.

Reading:   detect.py (the samples of a file), read.py (one sample as a run)
Mapping:   to_records.py (events), messages.py (messages and usage), outcome.py (scores, errors)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.protocol import Problem, RunToWrite, Source


def is_readable(path: Path) -> bool:
    """Return whether the file, or a file directly in the folder, is a log of Inspect."""
    from vestige.formats.inspect_logs.detect import has_log

    return has_log(path)


def find_runs(path: Path) -> Iterator[Path]:
    """Yield a path for each sample: the file, or `FILE#n` where it has several."""
    from vestige.formats.inspect_logs.detect import find_sample_paths

    yield from find_sample_paths(path)


def read_run(path: Path) -> Source:
    from vestige.formats.inspect_logs.read import read_sample

    return read_sample(path)


def validate_run(path: Path) -> Sequence[Problem]:
    """Return what cannot be read, as problems."""
    from vestige.errors import UnreadableError

    problems: list[Problem] = []
    try:
        for run_path in find_runs(path):
            source = read_run(run_path)
            for _ in source.records:
                pass
            problems.extend(source.problems)
    except UnreadableError as error:
        return [*problems, Problem(str(path), "", "log-unreadable", str(error))]
    return problems


def write_run(run: RunToWrite, target: Path) -> Path:
    from vestige.errors import UsageError

    raise UsageError("inspect_logs: cannot be written. Export as atif, messages or otlp.")
