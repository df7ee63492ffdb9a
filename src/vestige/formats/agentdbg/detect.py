"""Find AgentDbg runs, and open their files: bounded, and never outside the folder.

    data directory    ~/.agentdbg/            runs/ in it
    runs folder       runs/                   run directories in it
    run directory     runs/<run id>/          run.json, events.jsonl (v0.1)
                                              meta.json, spans.jsonl (v0.2)
    export            one JSON file           {"spec_version", "run", "events"}

A name that a file claims is never used as a path. A run directory that is a link, and a link in
place of one of its files, is refused: it may lead anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.agentdbg.file_structs import EVENTS_FILE, RUN_FILE
from vestige.formats.line_reader import open_file
from vestige.formats.protocol import is_uuid4
from vestige.limits import FOREIGN_FILE_MAX, FOREIGN_RUNS_MAX

META_FILE = "meta.json"
SPANS_FILE = "spans.jsonl"
RUNS_FOLDER = "runs"

_PEEK = 64 * 1024
_SAMPLES, _SAMPLE_BYTES = 16, 64 * 1024


def is_run(path: Path) -> bool:
    """Return whether a path is a run directory: it has one of the required files."""
    return not path.is_symlink() and _holds_run(path)


def is_linked_run(path: Path) -> bool:
    return path.is_symlink() and _holds_run(path)


def _holds_run(path: Path) -> bool:
    """Return whether a directory's name or contents are AgentDbg's: others use these names, too."""
    if is_uuid4(path.name) and any((path / name).is_file() for name in (EVENTS_FILE, SPANS_FILE)):
        return True
    return any(_holds(path / name, word) for name, word in _SIGNS.items())


def _holds(path: Path, word: bytes) -> bool:
    """Return whether a file begins with fields that only this format has."""
    if not path.is_file() or path.is_symlink():
        return False
    try:
        with open_file(path) as file:
            return word in file.read(_PEEK)
    except UnreadableError:
        return False


_SIGNS = {
    RUN_FILE: b'"spec_version"',
    EVENTS_FILE: b'"event_type"',
    SPANS_FILE: b'"span_id"',
    META_FILE: b'"spec_version"',
}


def is_v2(path: Path) -> bool:
    """Return whether a run has the later layout, with spans instead of events."""
    return (path / SPANS_FILE).is_file() and not (path / EVENTS_FILE).exists()


def is_export(path: Path) -> bool:
    """Check for a JSON document that begins like those of `agentdbg export`."""
    if not path.is_file():
        return False
    with open_file(path) as file:
        head = file.read(_PEEK)
    begin = head.lstrip()[:1] == b"{"
    return begin and b'"spec_version"' in head[:200] and b'"run"' in head[:400]


def runs_folder(path: Path) -> Path | None:
    """Return the folder with the runs of a path, if the path is that folder or a data directory."""
    if not path.is_dir():
        return None
    inner = path / RUNS_FOLDER
    if inner.is_dir() and any(True for _ in run_directories(inner)):
        return inner
    return path if any(True for _ in run_directories(path)) else None


def run_directories(folder: Path) -> Iterator[Path]:
    """Run directories in a folder, by name; links are passed over."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for _, entry in zip(range(FOREIGN_RUNS_MAX), entries, strict=False)
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            ]
    except OSError:
        return
    for name in sorted(names):
        if _holds_run(folder / name):
            yield folder / name


def read_whole(path: Path) -> bytes:
    """Read a complete file, unless it is too large."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size  # `read(n)` makes room for n at once
        data = file.read(min(size, FOREIGN_FILE_MAX) + 1)
    if len(data) > FOREIGN_FILE_MAX:
        raise UnreadableError(
            f"{path}: larger than {FOREIGN_FILE_MAX} bytes. Import the run directory instead."
        )
    return data


def estimate_lines(path: Path, known: int) -> int:
    """Estimate the number of lines of a file by samples; never fewer than are known."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        looked_at = lines = 0
        for part in range(_SAMPLES):
            file.seek(size * part // _SAMPLES)
            sample = file.read(_SAMPLE_BYTES)
            looked_at += len(sample)
            lines += sample.count(b"\n")
    return max(known, size * lines // max(1, looked_at))
