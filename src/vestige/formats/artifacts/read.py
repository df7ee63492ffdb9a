"""Iterate over the files of a bundle, in a directory or a zip: each once, in order, in chunks.

    for item in DirectoryTree(path).items():
        item.fault                      # why it cannot be read: a FIFO, a symlink that leads out
        for chunk in item.chunks(): ...

Files are not trusted. Nothing is extracted, no symlink is followed out of the root or into a
directory, no file that could block is opened, and the unpacked size of an archive is bounded.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from vestige.formats.artifacts import constants
from vestige.limits import ARTIFACT_FILES_MAX, ARTIFACT_ZIP_BYTES_MAX, KIB

CHUNK = 128 * KIB
"""The memory of a chunk is used again for the next chunk of the file."""
_FIRST = 64 * KIB
"""Most files are small, and a buffer of a megabyte is asked of the system, and cleared, for
each."""


class UnreadablePartError(Exception):
    """A file that could not be read to its end: the rule, and why."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


class Item(msgspec.Struct):
    """A file of a bundle."""

    path: str
    """Relative to the bundle root, with forward slashes."""
    read: Callable[[], Iterator[bytes]] | None
    link: bool = False
    fault: tuple[str, str] | None = None
    """(rule, message) if the file exists but must not be read."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes. Raise UnreadablePartError if that fails."""
        assert self.read is not None
        return self.read()


class Tree(Protocol):
    """A bundle root."""

    name: str
    """The path that the user named."""

    def items(self) -> Iterator[Item]:
        """Return all files below the root."""

    def chunks(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of one file; None if it is missing. UnreadablePartError if not a
        file."""

    def read(self, path: str, size_max: int) -> bytes | None:
        """Return the start of a file, at most one byte more than the bound; None if it does not
        exist."""


def read_start(chunks: Iterator[bytes] | None, size_max: int) -> bytes | None:
    """Read at most one byte more than the bound, which shows that the file is longer."""
    if chunks is None:
        return None
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > size_max:
            break
    return bytes(found[: size_max + 1])


class DirectoryTree:
    """A bundle on disk."""

    def __init__(self, root: Path, name: str | None = None) -> None:
        self.root = root
        self.name = str(root) if name is None else name
        self._real = os.path.realpath(root)

    def items(self) -> Iterator[Item]:
        left = ARTIFACT_FILES_MAX
        for item in self._folder(str(self.root), ""):
            left -= 1
            if left < 0:
                yield Item(
                    item.path,
                    None,
                    fault=(
                        "too-many",
                        f"more than {ARTIFACT_FILES_MAX} files; the rest was not looked at.",
                    ),
                )
                return
            yield item

    def chunks(self, path: str) -> Iterator[bytes] | None:
        place = os.path.join(self.root, path)
        if not os.path.lexists(place):
            return None
        if not self._is_inside(place) or not os.path.isfile(place):
            raise UnreadablePartError("file-special", "is not a file of this bundle.")
        return _Reader(place)()

    def read(self, path: str, size_max: int) -> bytes | None:
        return read_start(self.chunks(path), size_max)

    def _folder(self, folder: str, prefix: str) -> Iterator[Item]:
        """Yield folders without recursion: a tree may be deeper than Python's stack."""
        waiting = [(folder, prefix)]
        while waiting:
            folder, prefix = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=_name)
            except OSError as error:
                yield Item(
                    prefix.rstrip("/"),
                    None,
                    fault=("file-unreadable", f"cannot be read: {error.strerror}."),
                )
                continue
            folders = []
            for entry in found:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, path + "/"))
                elif entry.is_file(follow_symlinks=False):
                    yield Item(path, _Reader(entry.path))
                elif entry.is_symlink():
                    yield self._link(entry.path, path)
                else:
                    yield Item(
                        path,
                        None,
                        fault=("file-special", "is not a file (a pipe, socket or device)."),
                    )
            waiting.extend(reversed(folders))

    def _link(self, place: str, path: str) -> Item:
        try:
            mode = os.stat(place).st_mode
        except OSError:
            return Item(path, None, True, ("symlink-escapes", "is a symlink that leads nowhere."))
        if not self._is_inside(place):
            return Item(path, None, True, ("symlink-escapes", "is a symlink out of the bundle."))
        if stat.S_ISREG(mode):
            return Item(path, _Reader(place), True)
        if stat.S_ISDIR(mode):
            return Item(path, None, True)  # what is in it is looked at where it really is
        return Item(path, None, True, ("file-special", "is not a file (a pipe, socket or device)."))

    def _is_inside(self, place: str) -> bool:
        real = os.path.realpath(place)
        return real.startswith(self._real + os.sep)


class _Reader:
    """Reads a file in chunks. Without buffers of its own: most files are one chunk."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self) -> Iterator[bytes]:
        try:
            descriptor = os.open(self._place, os.O_RDONLY | _NONBLOCK)
        except OSError as error:
            raise UnreadablePartError(
                "file-unreadable", f"cannot be read: {error.strerror}."
            ) from None
        try:
            size = _FIRST
            while chunk := os.read(descriptor, size):
                yield chunk
                size = CHUNK
        except OSError as error:
            raise UnreadablePartError(
                "file-unreadable", f"cannot be read: {error.strerror}."
            ) from None
        finally:
            os.close(descriptor)


_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
"""A file that was replaced by a pipe meanwhile must not hold us up."""


class ZipTree:
    """A bundle in an archive, below a prefix."""

    def __init__(
        self, archive: zipfile.ZipFile, prefix: str, files: Sequence[zipfile.ZipInfo], name: str
    ) -> None:
        """`files`: all that is below the prefix."""
        self.name = name
        self._archive = archive
        self._prefix = prefix
        self._files = files
        self._left = ARTIFACT_ZIP_BYTES_MAX

    def items(self) -> Iterator[Item]:
        seen: set[str] = set()
        for info in self._files:
            if info.is_dir():
                continue
            path = info.filename[len(self._prefix) :]
            yield self._item(path, info, path in seen)
            seen.add(path)

    def _item(self, path: str, info: zipfile.ZipInfo, again: bool) -> Item:
        fault = constants.fault_of_path(path)
        if fault is not None:
            return Item(path, None, fault=("zip-name", f"the name {fault}."))
        if again:
            return Item(path, None, fault=("zip-name", "is in the archive twice."))
        if stat.S_ISLNK(info.external_attr >> 16):
            return Item(path, None, True, ("symlink-escapes", "is a symlink in an archive."))
        return Item(path, lambda: self._chunks(info))

    def _chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        try:
            with self._archive.open(info) as file:
                while chunk := file.read(CHUNK):
                    self._left -= len(chunk)
                    if self._left < 0:
                        raise UnreadablePartError(
                            "zip-damaged", "unfolds to too much; it was not read on."
                        )
                    yield chunk
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            RuntimeError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise UnreadablePartError("zip-damaged", f"cannot be read: {error}.") from None

    def chunks(self, path: str) -> Iterator[bytes] | None:
        try:
            return self._chunks(self._archive.getinfo(self._prefix + path))
        except KeyError:
            return None

    def read(self, path: str, size_max: int) -> bytes | None:
        return read_start(self.chunks(path), size_max)


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open an archive whose list of files is not too long. Raise UnreadablePartError otherwise."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnreadablePartError("zip-damaged", f"is not a readable archive: {error}.") from None
    if len(archive.infolist()) > ARTIFACT_FILES_MAX:
        archive.close()
        raise UnreadablePartError("too-many", f"holds more than {ARTIFACT_FILES_MAX} files.")
    return archive


def zip_prefixes(archive: zipfile.ZipFile) -> dict[str, list[zipfile.ZipInfo]]:
    """Return the outermost folders of an archive that hold a `bundle.json`, with their members.

    One pass for all: an archive may have as many bundles as files.
    """
    found: dict[str, list[zipfile.ZipInfo]] = {}
    for name in sorted(archive.namelist(), key=len):
        if name == constants.BUNDLE or name.endswith(f"/{constants.BUNDLE}"):
            prefix = name[: -len(constants.BUNDLE)]
            if constants.fault_of_path(prefix or "x") is None and _prefix_of(name, found) is None:
                found[prefix] = []
    for info in archive.infolist():
        inside = _prefix_of(info.filename, found)
        if inside is not None:
            found[inside].append(info)
    return dict(sorted(found.items()))


def _prefix_of(name: str, prefixes: Container[str]) -> str | None:
    if "" in prefixes:
        return ""
    end = name.find("/") + 1
    while end > 0:
        if name[:end] in prefixes:
            return name[:end]
        end = name.find("/", end) + 1
    return None


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
