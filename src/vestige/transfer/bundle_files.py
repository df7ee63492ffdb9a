"""Folders of bundles, and bundles as files: which is the latest, what goes, what is taken out.

latest_bundle(Path("debug"))
prune_bundles(Path("debug"), keep=10, age_max_s=7 * 86400, dry_run=True)
export_files(content, Path("out"))        # never outside of it, never over what is there
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vestige._runtime.file_locks import is_held
from vestige.errors import BundleCorruptedError, NotFoundError, UsageError
from vestige.formats.artifacts.constants import BUNDLE, SEED_TIMESTAMP, TRACE
from vestige.formats.artifacts.detect import find_places, is_bundle
from vestige.formats.atomic_file import PART
from vestige.formats.protocol import Problem
from vestige.formats.wink.archive.member_names import find_fault
from vestige.formats.wink.archive.salvage import intact
from vestige.formats.wink.content import BundleContent
from vestige.formats.wink.detect import find_latest
from vestige.formats.wink.to_records import open_content
from vestige.formats.wink.write import SUFFIX, write_bundle

PART_AGE_S = 24 * 3600
"""What a killed export left behind is no export any more after this."""


def find_bundle(path: Path) -> Path:
    """The bundle that a path means: itself, or the most recent in a folder."""
    if path.is_dir():
        latest = find_latest(path)
        if latest is None:
            raise NotFoundError(f"{path}: no bundle in it (expected .wink or .jsonl files).")
        return latest
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    return path


# --- retention --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrunedBundles:
    """What was removed from a folder, or would be, and what is left."""

    removed: Sequence[tuple[Path, int]]
    """Each with its size."""
    kept: int
    kept_bytes: int

    @property
    def freed_bytes(self) -> int:
        return sum(size for _, size in self.removed)


def prune_bundles(
    folder: Path,
    now_ns: int,
    *,
    keep: int | None = None,
    age_max_s: float | None = None,
    bytes_max: int | None = None,
    dry_run: bool = False,
) -> PrunedBundles:
    """Remove `.wink` files of a folder and bundles of suites below it, oldest first, until every bound holds."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder.")
    if keep is None and age_max_s is None and bytes_max is None:
        raise UsageError("prune: say what to keep: --keep, --max-age or --max-bytes.")
    found, parts = _bundles(folder)
    found += _suites(folder)
    kept: list[tuple[int, Path, int]] = []
    removed: list[tuple[Path, int]] = []
    total = 0
    for modified_ns, path, size in sorted(found, reverse=True):  # newest first
        old = age_max_s is not None and now_ns - modified_ns > age_max_s * 1e9
        many = keep is not None and len(kept) >= keep
        large = bytes_max is not None and total + size > bytes_max
        # Once one is too many, all older ones are: else a small old one would outlive newer ones.
        if old or many or large or removed:
            removed.append((path, size))
        else:
            kept.append((modified_ns, path, size))
            total += size
    removed += [
        (path, size) for modified_ns, path, size in parts if now_ns - modified_ns > PART_AGE_S * 1e9
    ]
    if not dry_run:
        for path, _ in removed:
            if path.is_dir():
                _remove_suite(path, folder)
            else:
                path.unlink(missing_ok=True)
    return PrunedBundles(removed, len(kept), total)


def _bundles(
    folder: Path,
) -> tuple[list[tuple[int, Path, int]], list[tuple[int, Path, int]]]:
    """Bundles, and what is left of exports that were killed."""
    found, parts = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            told = entry.stat(follow_symlinks=False)
            each = (told.st_mtime_ns, Path(entry.path), told.st_size)
            if entry.name.endswith(SUFFIX):
                found.append(each)
            elif entry.name.startswith(".") and entry.name.endswith(PART):
                parts.append(each)
    return found, parts


def _suites(folder: Path) -> list[tuple[int, Path, int]]:
    """Bundles of test suites, `<suite>/<timestamp>`. One that still runs is none yet."""
    found = []
    for place in find_places(folder).bundles:
        if place == folder or not SEED_TIMESTAMP.fullmatch(place.name) or not is_bundle(place):
            continue  # somebody's folder that only looks like one
        if is_held(place / TRACE):
            continue
        end = place / BUNDLE if (place / BUNDLE).is_file() else place / TRACE
        size = sum(
            os.lstat(os.path.join(root, name)).st_size
            for root, _, names in os.walk(place)
            for name in names
        )
        found.append((end.stat().st_mtime_ns, place, size))
    return found


def _remove_suite(path: Path, root: Path) -> None:
    """Out of sight first: what is half removed must not look like a bundle that is wrong."""
    hidden = path.with_name(f".{path.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)  # of a prune that was killed
    path.rename(hidden)
    shutil.rmtree(hidden)
    if path.parent != root:
        with suppress(OSError):  # it has others
            path.parent.rmdir()


# --- salvage ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SalvagedBundle:
    """What became of a bundle that may be damaged."""

    written: Path | None
    """None: nothing is damaged."""
    problems: Sequence[Problem]
    """Of the bundle that was read."""


def salvage_bundle(path: Path, folder: Path) -> SalvagedBundle:
    """Write the intact parts of a bundle into a folder, as a new bundle."""
    content = open_content(path, partial=True)
    content.verify()
    problems = [problem for problem in content.problems if problem.severity == "error"]
    if not problems:
        return SalvagedBundle(None, ())
    written = write_bundle(intact(content), folder / f"{path.stem}-recovered{SUFFIX}")
    return SalvagedBundle(written, problems)


# --- taking parts out -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """What was written, and what was not."""

    written: int
    size_bytes: int
    refused: Sequence[tuple[str, str]]
    """Path, and why."""


def export_logs(content: BundleContent, target: Path) -> int:
    """Write the log as JSON lines; how many. A file that is there stays."""
    _make_folder(target.parent)
    count = 0
    try:
        with _new_file(target) as file:
            for line in content.logs():
                file.write(line.encode(errors="surrogateescape") + b"\n")
                count += 1
    except FileExistsError:
        raise UsageError(f"{target}: exists already. Give another name.") from None
    return count


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{folder}: a file is in the way. Give another name.") from None


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that was not there, and is not there either if not all of it could be written."""
    file = target.open("xb")
    try:
        with file:
            yield file
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # a full disk does not say where
        raise


def export_files(content: BundleContent, folder: Path) -> ExportedFiles:
    """Write the files into a folder: never outside of it, never over what is there."""
    _make_folder(folder)
    root = folder.resolve()
    written = size = 0
    refused: list[tuple[str, str]] = []
    for file in content.files():
        fault = find_fault(file.path)
        if fault is None:
            target = root.joinpath(*file.path.split("/"))
            fault = _prepare(root, target)
        if fault is not None:
            refused.append((file.path, fault))
            continue
        try:
            with _new_file(target) as out, file.open() as source:
                shutil.copyfileobj(source, out)
        except FileExistsError:
            refused.append((file.path, "exists already"))
            continue
        except BundleCorruptedError as error:
            refused.append((file.path, f"damaged ({_reason(error, file.path)})"))
            continue
        except OSError as error:  # a name that this file system does not take
            refused.append((file.path, error.strerror or str(error)))
            continue
        written += 1
        size += file.size_bytes
    return ExportedFiles(written, size, refused)


def _reason(error: BundleCorruptedError, path: str) -> str:
    """What is wrong with a file, without its name in front."""
    return str(error).partition(path)[2].strip(" :.") or str(error)


def _prepare(root: Path, target: Path) -> str | None:
    """Make the folder of a file; why not, if not."""
    try:
        if target.is_symlink():
            return "exists already"
        # Each step looked at before it is made: a link on the way would lead out.
        for parent in reversed(target.relative_to(root).parents[:-1]):
            step = root / parent
            if step.is_symlink():
                return "a link is on the way"
            step.mkdir(exist_ok=True)
    except OSError as error:  # also of looking: a name longer than this file system takes
        return error.strerror or str(error)
    return None
