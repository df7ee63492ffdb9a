"""Filesystem: a small protocol for the files of an agent, in memory or in a directory.

    fs = MemoryFilesystem({"notes.md": b"# Plan"})
    fs = DirectoryFilesystem("./workspace")
    fs.write_bytes("out/report.md", b"...")
    fs.list("out"); fs.stat("out/report.md").size_bytes; fs.read_bytes("out/report.md")

Paths are relative to the filesystem's own root, with forward slashes; "." is the root. A path that
would leave it (`..`, an absolute one, a symlink to elsewhere) is refused with PermissionError.

A bundle takes any object of this shape, of whichever library: `walk` knows the differences.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from vestige.limits import NESTING_MAX


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a folder."""

    name: str
    path: str
    """From the filesystem's root."""
    is_file: bool
    is_directory: bool


@dataclass(frozen=True, slots=True)
class FileStat:
    """Facts about a file that is not read."""

    path: str
    is_file: bool
    is_directory: bool
    size_bytes: int


class Filesystem(Protocol):
    """The methods of a filesystem that a bundle needs."""

    def list(self, path: str = ".") -> Sequence[FileEntry]: ...

    def stat(self, path: str) -> FileStat: ...

    def read_bytes(self, path: str) -> bytes: ...

    def open_read(self, path: str) -> BinaryIO: ...


class MemoryFilesystem:
    """Files as a dictionary; folders are where files are."""

    def __init__(self, files: Mapping[str, bytes | str] | None = None) -> None:
        self._files: dict[str, bytes] = {}
        for path, content in (files or {}).items():
            self.write_bytes(path, content.encode() if isinstance(content, str) else content)

    def write_bytes(self, path: str, content: bytes) -> None:
        place = clean_path(path)
        if place == "." or self._is_directory(place):
            raise IsADirectoryError(f"{path}: is a directory.")
        parts = place.split("/")
        for depth in range(1, len(parts)):
            if (above := "/".join(parts[:depth])) in self._files:
                raise NotADirectoryError(f"{path}: {above} is a file.")
        self._files[place] = bytes(content)

    def write(self, path: str, content: str) -> None:
        self.write_bytes(path, content.encode())

    def delete(self, path: str) -> None:
        del self._files[self._find(path)]

    def exists(self, path: str) -> bool:
        place = clean_path(path)
        return place in self._files or self._is_directory(place)

    def list(self, path: str = ".") -> Sequence[FileEntry]:
        place = clean_path(path)
        if not self._is_directory(place):
            kind = NotADirectoryError if place in self._files else FileNotFoundError
            raise kind(f"{path}: no such directory.")
        begin = "" if place == "." else f"{place}/"
        found: dict[str, FileEntry] = {}
        for name in self._files:
            if name.startswith(begin):
                child, deeper, _ = name[len(begin) :].partition("/")
                found[child] = FileEntry(child, begin + child, not deeper, bool(deeper))
        return [found[name] for name in sorted(found)]

    def stat(self, path: str) -> FileStat:
        place = clean_path(path)
        if self._is_directory(place):
            return FileStat(place, False, True, 0)
        return FileStat(place, True, False, len(self._files[self._find(path)]))

    def read_bytes(self, path: str) -> bytes:
        return self._files[self._find(path)]

    def open_read(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read_bytes(path))

    def _find(self, path: str) -> str:
        place = clean_path(path)
        if place not in self._files:
            raise FileNotFoundError(f"{path}: no such file.")
        return place

    def _is_directory(self, place: str) -> bool:
        return place == "." or any(name.startswith(f"{place}/") for name in self._files)


class DirectoryFilesystem:
    """A directory of this machine, and nothing outside it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.realpath(root))

    def write_bytes(self, path: str, content: bytes) -> None:
        place = self._inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def write(self, path: str, content: str) -> None:
        self.write_bytes(path, content.encode())

    def delete(self, path: str) -> None:
        self._inside(path).unlink()

    def exists(self, path: str) -> bool:
        return self._inside(path).exists()

    def list(self, path: str = ".") -> Sequence[FileEntry]:
        place = self._inside(path)
        begin = "" if place == self.root else f"{clean_path(path)}/"
        with os.scandir(place) as found:
            # Links are neither: what they point to may be outside, or a circle.
            return [
                FileEntry(
                    one.name,
                    begin + one.name,
                    one.is_file(follow_symlinks=False),
                    one.is_dir(follow_symlinks=False),
                )
                for one in sorted(found, key=lambda one: one.name)
            ]

    def stat(self, path: str) -> FileStat:
        place = self._inside(path)
        found = place.stat()
        return FileStat(clean_path(path), place.is_file(), place.is_dir(), found.st_size)

    def read_bytes(self, path: str) -> bytes:
        with self.open_read(path) as file:
            return file.read()

    def open_read(self, path: str) -> BinaryIO:
        # Checked first, and no link is followed at the end: it may have been swapped in between.
        return os.fdopen(os.open(self._inside(path), os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def _inside(self, path: str) -> Path:
        place = Path(os.path.realpath(self.root / clean_path(path)))
        if place != self.root and self.root not in place.parents:
            raise PermissionError(f"{path}: leads outside of {self.root}.")
        return place


def clean_path(path: str) -> str:
    """Return a relative path with forward slashes and without `.`; `.` itself for the root."""
    if "\0" in path or path.startswith("/"):
        raise PermissionError(
            f"{path!r}: not a path inside a filesystem (expected a relative one)."
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PermissionError(f"{path}: leads outside of the filesystem.")
    return "/".join(parts) or "."


def as_filesystem(source: Any) -> Any:
    """Return a filesystem itself, or that of a directory's path; raise for anything else."""
    if isinstance(source, (str, os.PathLike)):
        place = os.path.expanduser(os.fspath(source))
        if not os.path.isdir(place):
            raise NotADirectoryError(
                f"{place}: no such directory (expected one, or a filesystem object)."
            )
        return DirectoryFilesystem(place)
    if not callable(getattr(source, "list", None)):
        raise TypeError(
            f"fs: {type(source).__name__} has no list() (expected a filesystem, or the path of a"
            " directory)."
        )
    return source


# --- any filesystem -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of some filesystem, or a folder or file that could not be looked at."""

    path: str
    size_bytes: int | None
    error: Exception | None = None


def walk(fs: Any, path: str = ".", depth: int = 4 * NESTING_MAX) -> Iterator[FoundFile]:
    """Yield every file below a path, of the filesystem of any library."""
    try:
        entries = [
            (str(entry.path), bool(entry.is_directory), bool(entry.is_file))
            for entry in fs.list(path)
        ]
    except Exception as error:  # noqa: BLE001  # a foreign filesystem's own code
        yield FoundFile(path, None, error)
        return
    for name, is_directory, is_file in entries:
        if is_directory and depth:
            yield from walk(fs, name, depth - 1)
        elif is_file:
            yield _found(fs, name)
        else:
            reason = "nested too deep" if is_directory else "neither a file nor a directory"
            yield FoundFile(name, None, OSError(reason))


def _found(fs: Any, name: str) -> FoundFile:
    try:
        return FoundFile(name, int(fs.stat(name).size_bytes))
    except Exception as error:  # noqa: BLE001  # the filesystem's own code
        return FoundFile(name, None, error)


def chunks(fs: Any, path: str, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file: in chunks if the filesystem has `open_read`, else all at once."""
    if not hasattr(fs, "open_read"):
        content = fs.read_bytes(path)
        yield content if isinstance(content, bytes) else bytes(content.content)
        return
    with fs.open_read(path) as file:
        while step := file.read(size):
            yield step
