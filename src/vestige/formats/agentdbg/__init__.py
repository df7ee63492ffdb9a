"""The AgentDbg v0.1 trace format: run directories with run.json and events.jsonl.

Reads run directories (also of the later v0.2 layout), folders of them, data directories and the
files of `agentdbg export`. Writes run directories that AgentDbg lists, exports and views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.agentdbg import detect
from vestige.formats.protocol import Problem, RunToWrite, Source


def is_readable(path: Path) -> bool:
    try:
        if path.is_dir():
            return (
                detect.is_run(path)
                or detect.is_linked_run(path)
                or detect.runs_folder(path) is not None
            )
        return detect.is_export(path)
    except (OSError, UnreadableError):
        return False


def find_runs(path: Path) -> Iterator[Path]:
    folder = None
    if path.is_dir() and not detect.is_run(path) and not detect.is_linked_run(path):
        folder = detect.runs_folder(path)
    if folder is None:
        yield path
    else:
        yield from detect.run_directories(folder)


def read_run(path: Path) -> Source:
    from vestige.formats.agentdbg.read import read_run

    return read_run(path)


def read_head(path: Path) -> Source | None:
    """Read the beginning of a long run; None if it is short enough to read completely."""
    from vestige.formats.agentdbg.read import glance_at_run

    return glance_at_run(path)


def write_run(run: RunToWrite, target: Path) -> Path:
    from vestige.formats.agentdbg.write import write_run

    return write_run(run, target)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.agentdbg.validate import check_path

    return check_path(path)


def recover_runs(path: Path) -> Iterator[tuple[Path, str]]:
    """Finish the runs at a path whose program died.

    Yields each unfinished run, with the reason if it was not finished now."""
    from vestige.formats.agentdbg.recover import recover_run

    for place in find_runs(path):
        left = recover_run(place)
        if left is not None:
            yield place, left
