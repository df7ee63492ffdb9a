"""Finish the bundle of a killed suite: a valid bundle that names the cases that were running.

    for found in recover(Path("tests/artifacts")): found.folder, found.running

Such a case is `unknown`, and the transcript gives the reason. Only the folder is needed. A suite
that still runs is skipped: its writer holds the lock of its trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from vestige._runtime.file_locks import is_held
from vestige.artifacts.attachments import PARTIAL
from vestige.artifacts.finalize import finish
from vestige.artifacts.merge_traces import rebuild_trace, worker_files
from vestige.errors import UsageError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.detect import folders
from vestige.formats.artifacts.json_files.parsing import is_json, is_valid_json
from vestige.limits import ARTIFACT_JSON_MAX

_DEPTH_MAX = 2
"""From a tree of suites to a bundle: suite, timestamp."""


class Recovered(msgspec.Struct, frozen=True):
    """A bundle that is finished now."""

    folder: Path
    running: list[str]
    """The cases that were running when the suite was killed."""


def is_unfinished(folder: Path) -> bool:
    """Return whether a folder holds a suite without its `bundle.json`. Cheap; never raises."""
    try:
        if (folder / constants.BUNDLE).exists():
            return False
        return (folder / constants.TRACE).is_file() or (
            _is_named(folder) and (folder / "trace").is_dir()
        )
    except OSError:
        return False


def _is_named(folder: Path) -> bool:
    return constants.SEED_TIMESTAMP.fullmatch(folder.name) is not None


def find_unfinished(path: Path) -> Iterator[Path]:
    """Return the unfinished bundle at a path, or those in a tree: `<suite>/<timestamp>`, and no
    others.

    A folder without a timestamp as its name is only changed if the caller names it.
    """
    if is_unfinished(path):
        yield path
    else:
        yield from _below(path, _DEPTH_MAX)


def _below(path: Path, depth: int) -> Iterator[Path]:
    if depth == 0 or (path / constants.BUNDLE).exists():
        return
    for folder in folders(path):
        if _is_named(folder):
            if is_unfinished(folder):
                yield folder
        else:
            yield from _below(folder, depth - 1)


def recover(path: Path) -> list[Recovered]:
    """Finish every unfinished bundle at a path. Those of suites that still run are refused."""
    found = list(find_unfinished(path))
    for folder in found:
        for trace in (folder / constants.TRACE, *worker_files(folder)):
            if is_held(trace):
                raise UsageError(f"{folder}: the suite is still running. Wait for it to end.")
    return [_recover(folder) for folder in found]


def _recover(folder: Path) -> Recovered:
    (folder / "trace").mkdir(exist_ok=True)
    _keep_evidence(folder)
    default = (folder.parent.name or "unknown", folder.name, _time_of(folder.name))
    merged = rebuild_trace(folder, default=default)
    running = list(merged.running)
    notes = [f"the suite was killed while {case} was running" for case in running]
    if not running:
        notes = ["the suite was killed; no case was running"]
    try:
        finish(folder, merged, [*notes, "finished by `vestige store recover`"])
    finally:
        merged.release()
    return Recovered(folder, running)


def _time_of(name: str) -> str:
    """Return the time after which a folder is named."""
    try:
        return datetime.strptime(name, "%Y%m%d_%H%M%S").strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return "1970-01-01T00:00:00Z"


def _keep_evidence(folder: Path) -> None:
    """Rename a truncated JSON file to text: it is evidence, but not valid JSON."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if relative in constants.PART_OF or relative.startswith("trace/") or not path.is_file():
            continue
        if path.name.endswith(PARTIAL) or path.is_symlink() or not is_json(path.name):
            continue
        large = path.stat().st_size > ARTIFACT_JSON_MAX
        if large or not is_valid_json(path.name, path.read_bytes()):
            target, number = path.with_name(f"{path.name}.txt"), 1
            while os.path.lexists(target):  # evidence too
                number += 1
                target = path.with_name(f"{path.name}-{number}.txt")
            path.rename(target)
