"""Add files to a bundle: copied, redacted and hashed in one pass.

    attachments = Attachments(folder, texts)
    attachments.copy("cases/pays-1f", Path("/tmp/server.log"))       # cases/pays-1f/server.log
    attachments.write("cases/pays-1f", "stdout.txt", "...")

A copy gets its name when it is complete, so a killed suite leaves no partial file under a final
name. Text is redacted; other files are copied unchanged.

A `.json` file with invalid JSON would make the bundle invalid, but may be the evidence: `.txt` is
added to its name.

Files are read as the test sees them, through `os` and a fake file system if it has one. They are
written to the real file system (_runtime/syscalls.py), even if the test replaced functions of `os`.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePath

import msgspec

from vestige._runtime.syscalls import make_folder, read_file, system
from vestige.artifacts.text_sanitizer import TextSanitizer, file_name
from vestige.errors import NotFoundError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.json_files.parsing import is_json, is_valid_json
from vestige.limits import ARTIFACT_JSON_MAX, KIB, MIB

PARTIAL = ".part"
_CHUNK = MIB
_UNKNOWN = 64 * KIB
"""Read first of a file that does not tell its size, as those of /proc."""
_SOURCE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe must not hold the suite up."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NAME_MAX = 120


class Attachments:
    """The files that one process brings into a bundle."""

    def __init__(self, folder: Path, texts: TextSanitizer) -> None:
        self.known: dict[str, tuple[int, int, str]] = {}
        """Path in the bundle to size, mtime_ns and sha256, so that no file is hashed twice."""
        self._folder = f"{folder}/"
        self._texts = texts
        self._made: set[str] = set()
        self._numbers: dict[str, int] = {}
        """Requested name to the last number that was added to it, so the search starts there."""

    def copy(
        self, place: str, source: Path, name: str | None = None, *, exact: bool = False
    ) -> str:
        """Copy a file into a folder of the bundle; its path there. `exact`: do not mask it."""
        try:
            fd = os.open(source, _SOURCE)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{source}: no such file to attach.") from None
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise NotFoundError(f"{source}: no such file to attach.")
            # A byte more than it has: most files are whole then, and a large buffer is not for
            # nothing.
            first = os.read(fd, min(about.st_size + 1, _CHUNK) if about.st_size else _UNKNOWN)
            is_complete = len(first) == about.st_size < _CHUNK
            chunks = iter((first,)) if is_complete else _rest(first, fd)
            name = name or source.name
            if not exact and _is_text(first, name):
                chunks = self._masked(first if is_complete else None, chunks)
            return self._store(place, name, chunks)
        finally:
            os.close(fd)

    def write(self, place: str, name: str, content: str | bytes, *, exact: bool = False) -> str:
        """Write data of a test into a folder of the bundle, and return its path there."""
        if isinstance(content, str):
            content = self._texts.clean(content).encode()
        elif not exact and _is_text(content, name):
            content = b"".join(self._masked(content, iter((content,))))
        return self._store(place, name, iter((content,)))

    def _masked(self, content: bytes | None, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks with secrets redacted.

        `content` is all of them, if it is known: then one scan may show that there are none.
        """
        if content is not None and len(content) < _CHUNK and not self._suspicious(content):
            return iter((content,))
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        texts = (decode(chunk, not chunk) for chunk in (*chunks, b""))
        stream = self._texts.redactor.stream(texts)
        return (text.encode(errors="surrogateescape") for text in stream)

    def _suspicious(self, data: bytes) -> bool:
        return self._texts.redactor.suspicious(msgspec.json.encode(data.decode(errors="replace")))

    def _store(self, place: str, name: str, chunks: Iterator[bytes]) -> str:
        if place not in self._made:
            make_folder(self._folder + place)
            self._made.add(place)
        name = _safe_name(self._texts.clean(name))
        partial, fd = self._open_new(f"{place}/{name}{PARTIAL}")
        hasher, size, head = sha256(), 0, b""
        try:
            for chunk in chunks:
                hasher.update(chunk)
                size += len(chunk)
                head = chunk if size == len(chunk) else head
                while chunk:
                    chunk = chunk[system.write(fd, chunk) :]
            mtime_ns = system.fstat(fd).st_mtime_ns
        finally:
            system.close(fd)
        if _is_false_json(name, head if size == len(head) else None, self._folder + partial):
            name += ".txt"
        path = self._rename(partial, f"{place}/{name}")
        self.known[path] = (size, mtime_ns, hasher.hexdigest())
        return path

    def _open_new(self, path: str) -> tuple[str, int]:
        for candidate in _numbered(path):
            try:
                return candidate, system.open(self._folder + candidate, _NEW, 0o644)
            except FileExistsError:
                continue
        raise AssertionError("numbers do not end")

    def _rename(self, partial: str, name: str) -> str:
        """Rename to the requested name, or to the next free one. Nothing is overwritten."""
        number = self._numbers.get(name, 0)
        for candidate in _numbered(name, number):
            self._numbers[name] = number = number + 1
            try:
                system.link(self._folder + partial, self._folder + candidate)
            except FileExistsError:
                continue
            except OSError:  # a file system without hard links
                if _is_there(self._folder + candidate):
                    continue
                system.rename(self._folder + partial, self._folder + candidate)
                return candidate
            system.unlink(self._folder + partial)
            return candidate
        raise AssertionError("numbers do not end")


def _is_false_json(name: str, data: bytes | None, path: str) -> bool:
    if not is_json(name):
        return False
    if data is None:
        if system.stat(path).st_size > ARTIFACT_JSON_MAX:
            return True  # too large for anyone to check: it is evidence, not a document
        data = read_file(path)
    return not is_valid_json(name, data)


def _is_there(path: str) -> bool:
    try:
        system.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _is_text(first: bytes, name: str) -> bool:
    return not constants.is_screenshot(name) and b"\0" not in first[:8192]


def _rest(first: bytes, fd: int) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = os.read(fd, _CHUNK)


def _safe_name(name: str) -> str:
    stem, suffix = os.path.splitext(PurePath(name.replace("\\", "/")).name)
    suffix = "." + file_name(suffix[1:], 20) if len(suffix) > 1 else ""
    return file_name(stem, _NAME_MAX) + suffix


def _numbered(path: str, number: int = 0) -> Iterator[str]:
    """Yield the path, then the path with the numbers 2, 3 and so on."""
    stem, suffix = os.path.splitext(path)
    while True:
        number += 1
        yield path if number == 1 else f"{stem}-{number}{suffix}"
