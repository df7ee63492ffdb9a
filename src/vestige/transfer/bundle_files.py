"""Find, prune and unpack bundles in folders.

find_bundle(Path("debug"))                # the latest
prune_bundles(Path("debug"), now_ns, keep=10, age_max_s=7 * 86400, dry_run=True)
export_files(content, Path("out"))        # never outside of it, never over existing files
"""

from __future__ import annotations

import os
import shutil
import tempfile
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
from vestige.formats.wink.archive.skip_damaged_files import intact
from vestige.formats.wink.archive.truncated_archive import rebuild_archive
from vestige.formats.wink.bundle_content import BundleContent
from vestige.formats.wink.detect import find_latest
from vestige.formats.wink.to_records import open_content
from vestige.formats.wink.write import SUFFIX, write_bundle
from vestige.formats.zip_index_limits import has_directory

PART_AGE_S = 24 * 3600
"""A partial file of this age belongs to a killed export."""


def find_bundle(path: Path) -> Path:
    """Return the bundle at a path, or the most recent bundle in a folder."""
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
    """The bundles that were removed from a folder, or would be, and the sizes of the others."""

    removed: Sequence[tuple[Path, int]]
    """The path and size of each."""
    left: int
    left_bytes: int

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
    """Remove `.wink` files in a folder and suite bundles below it, until every limit holds.

    The oldest are removed first.
    """
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder.")
    if keep is None and age_max_s is None and bytes_max is None:
        raise UsageError("prune: a limit is required: --keep, --max-age or --max-bytes.")
    found, parts = _find_wink_files(folder)
    found += _find_suites(folder)
    removed: list[tuple[Path, int]] = []
    left = total = 0
    for modified_ns, path, size in sorted(found, reverse=True):  # newest first
        old = age_max_s is not None and now_ns - modified_ns > age_max_s * 1e9
        many = keep is not None and left >= keep
        large = bytes_max is not None and total + size > bytes_max
        # After the first one, all older ones go, or a small old one could outlive newer ones.
        if old or many or large or removed:
            removed.append((path, size))
        else:
            left += 1
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
    return PrunedBundles(removed, left, total)


def _find_wink_files(
    folder: Path,
) -> tuple[list[tuple[int, Path, int]], list[tuple[int, Path, int]]]:
    """Return the bundles, and the partial files of killed exports."""
    found, parts = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            stat = entry.stat(follow_symlinks=False)
            item = (stat.st_mtime_ns, Path(entry.path), stat.st_size)
            if entry.name.endswith(SUFFIX):
                found.append(item)
            elif entry.name.startswith(".") and entry.name.endswith(PART):
                parts.append(item)
    return found, parts


def _find_suites(folder: Path) -> list[tuple[int, Path, int]]:
    """Return the bundles of finished test suites, `<suite>/<timestamp>`."""
    found = []
    for path in find_places(folder).bundles:
        if path == folder or not SEED_TIMESTAMP.fullmatch(path.name) or not is_bundle(path):
            continue  # a folder that only resembles a bundle
        if is_held(path / TRACE):
            continue  # the suite is still running
        end = path / BUNDLE if (path / BUNDLE).is_file() else path / TRACE
        size = sum(
            os.lstat(os.path.join(root, name)).st_size
            for root, _, names in os.walk(path)
            for name in names
        )
        found.append((end.stat().st_mtime_ns, path, size))
    return found


def _remove_suite(path: Path, root: Path) -> None:
    """Rename, then delete, so that a partly deleted bundle does not look like a damaged one."""
    hidden = path.with_name(f".{path.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)  # left by a prune that was killed
    path.rename(hidden)
    shutil.rmtree(hidden)
    if path.parent != root:
        with suppress(OSError):  # the suite has other bundles
            path.parent.rmdir()


# --- salvage ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SalvagedBundle:
    """The result of salvaging a bundle that may be damaged."""

    written: Path | None
    """None: nothing is damaged."""
    problems: Sequence[Problem]
    """The problems of the bundle that was read."""


def salvage_bundle(path: Path, folder: Path) -> SalvagedBundle:
    """Write the intact parts of a bundle into a folder, as a new bundle."""
    if path.suffix == SUFFIX and not has_directory(path):
        return _salvage_truncated(path, folder)
    content = open_content(path, partial=True)
    content.verify()
    problems = [problem for problem in content.problems if problem.severity == "error"]
    if not problems:
        return SalvagedBundle(None, ())
    written = write_bundle(intact(content), folder / f"{path.stem}-recovered{SUFFIX}")
    return SalvagedBundle(written, problems)


def _salvage_truncated(path: Path, folder: Path) -> SalvagedBundle:
    problem = Problem(
        str(path), "", "file-truncated", "is cut off before its end; what follows is missing."
    )
    with tempfile.TemporaryDirectory() as temporary:
        rebuilt = Path(temporary, path.name)
        with rebuilt.open("wb") as file:
            found = rebuild_archive(path, file)
        content = open_content(rebuilt if found else path, partial=True)
        written = write_bundle(intact(content), folder / f"{path.stem}-recovered{SUFFIX}")
    return SalvagedBundle(written, (problem,))


# --- unpacking --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """The count and size of written files, and the files that were refused."""

    written: int
    size_bytes: int
    refused: Sequence[tuple[str, str]]
    """Path and reason."""


def export_logs(content: BundleContent, target: Path) -> int:
    """Write the log as JSON lines to a new file. Return the number of lines."""
    _make_folder(target.parent)
    count = 0
    try:
        with _new_file(target) as file:
            for line in content.logs():
                file.write(line.encode(errors="surrogateescape") + b"\n")
                count += 1
    except FileExistsError:
        raise UsageError(f"{target}: already exists. Choose another name.") from None
    return count


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{folder}: not a folder. Choose another name.") from None


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """Open a new file, which is deleted again if writing to it fails."""
    file = target.open("xb")
    try:
        with file:
            yield file
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # the error of a full disk has no file name
        raise


def export_files(content: BundleContent, folder: Path) -> ExportedFiles:
    """Write the files of a bundle into a folder, never outside of it or over existing files."""
    _make_folder(folder)
    root = folder.resolve()
    written = size = 0
    refused: list[tuple[str, str]] = []
    for file in content.files():
        reason = find_fault(file.path)
        if reason is None:
            target = root.joinpath(*file.path.split("/"))
            reason = _prepare(root, target)
        if reason is not None:
            refused.append((file.path, reason))
            continue
        try:
            with _new_file(target) as out, file.open() as source:
                shutil.copyfileobj(source, out)
        except FileExistsError:
            refused.append((file.path, "already exists"))
            continue
        except BundleCorruptedError as error:
            refused.append((file.path, f"damaged ({_reason(error, file.path)})"))
            continue
        except OSError as error:  # a name that this file system does not support
            refused.append((file.path, error.strerror or str(error)))
            continue
        written += 1
        size += file.size_bytes
    return ExportedFiles(written, size, refused)


def _reason(error: BundleCorruptedError, path: str) -> str:
    """Return the reason of an error about a file, without the file's name."""
    return str(error).partition(path)[2].strip(" :.") or str(error)


def _prepare(root: Path, target: Path) -> str | None:
    """Create the folder of a file. Return the reason if that is refused."""
    try:
        if target.is_symlink():
            return "already exists"
        # Each folder is checked before it is created, because a link could lead outside.
        for parent in reversed(target.relative_to(root).parents[:-1]):
            step = root / parent
            if step.is_symlink():
                return "its folder is a symbolic link"
            step.mkdir(exist_ok=True)
    except OSError as error:  # also from is_symlink, for names that are too long
        return error.strerror or str(error)
    return None
