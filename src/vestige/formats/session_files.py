"""Files of coding agents' sessions: listing, liveness, and what their formats share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from vestige._runtime.clock import SYSTEM
from vestige.errors import UnreadableError, UsageError
from vestige.formats.protocol import Problem, Source
from vestige.limits import FIRST_PAGE_EVENTS, FIRST_PAGE_MIN, FOREIGN_RUNS_MAX, FOREIGN_SILENCE_S
from vestige.record.types import Attributes, KnownRecord

_COUNT_MAX: Final = 2**53


def list_files(folder: Path, *suffixes: str) -> Iterator[Path]:
    """Yield regular files of a folder by name, without links."""
    yield from (
        folder / name
        for name in _names(folder, lambda entry: entry.is_file(follow_symlinks=False))
        if name.endswith(suffixes)
    )


def list_folders(folder: Path) -> Iterator[Path]:
    """Yield folders of a folder by name, without links."""
    names = _names(folder, lambda entry: entry.is_dir(follow_symlinks=False))
    yield from (folder / name for name in names)


def _names(folder: Path, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name for entry in islice(entries, FOREIGN_RUNS_MAX) if is_wanted(entry)
            )
    except OSError:
        return []


def is_silent(path: Path, last_ns: int) -> bool:
    """Return whether a file has not changed for so long that nothing more will come.

    `last_ns`: the time of its last entry; a copy is younger than that.
    """
    try:
        changed_ns = os.stat(path).st_mtime_ns
    except OSError:
        return True
    since_ns = min(changed_ns, last_ns) if last_ns else changed_ns
    return SYSTEM.now_ns() - since_ns > FOREIGN_SILENCE_S * 1_000_000_000


def is_long(path: Path) -> bool:
    """Return whether reading a file takes so long that its beginning is shown first."""
    try:
        return path.is_file() and path.stat().st_size >= FIRST_PAGE_MIN
    except OSError:
        return False


def take_head(records: Iterator[KnownRecord]) -> Iterator[KnownRecord]:
    """Return the first records of a long source."""
    return islice(records, FIRST_PAGE_EVENTS)


def estimate_unread(path: Path, count: int) -> int:
    """Return about how many lines a long file has besides the `count` records of its head."""
    if count < FIRST_PAGE_EVENTS:
        return 0  # the head is all of it
    size = path.stat().st_size
    with open(path, "rb") as file:
        sample = file.read(4 * 1024 * 1024)
    lines = size * sample.count(b"\n") // max(1, len(sample))
    return max(1, lines - count)  # a line may have been several records


def validate_source(source: Source) -> Sequence[Problem]:
    """Read all records of a source, and return its problems."""
    try:
        for _ in source.records:
            pass
    except UnreadableError as error:
        return [*source.problems, Problem("", "", "unreadable", str(error))]
    return source.problems


def refuse_writing(format: str) -> UsageError:
    return UsageError(f"{format}: cannot be written. Export as otlp, agentdbg or wink.")


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def to_count(value: Any) -> int | None:
    """Return a count of a log, or None if it is not one."""
    return value if type(value) is int and 0 <= value <= _COUNT_MAX else None


def count_attributes(**counts: Any) -> Attributes:
    """Return the counts that are valid."""
    return {name: value for name, value in counts.items() if to_count(value) is not None}
