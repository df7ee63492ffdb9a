"""Lines of a file that another program wrote: bounded, and never outside the path.

    with open_lines(path) as file:
        lines = LineReader(file)
        for number, line in lines: ...          # bytes, or TooLong
        lines.torn                              # the bytes after the last newline

No link is followed and no pipe is waited for. Files that end with `.zst` are decompressed while
they are read; a small frame cannot request a large window.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, TypeVar, cast

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.protocol import Problem
from vestige.limits import DECOMPRESSED_FILE_MAX, EVENT_LINE_MAX, MIB, PROBLEMS_MAX

if TYPE_CHECKING:
    from backports.zstd import ZstdFile

Entry = TypeVar("Entry")

CHUNK: Final = 1024 * 1024
TORN_MAX: Final = 64 * 1024
ZSTD_SUFFIX: Final = ".zst"
ZSTD_WINDOW_LOG_MAX: Final = 27
"""The longest window that a frame may request: 128 MiB, zstd's own default limit."""


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. Links are not followed; pipes are not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "a link, which is not followed" if path.is_symlink() else error.strerror
        raise UnreadableError(f"{path}: cannot be read ({why}).") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnreadableError(f"{path}: not a regular file.")
    return os.fdopen(fd, "rb")


def open_lines(path: Path) -> BinaryIO:
    """Open a file of lines, which may be compressed."""
    file = open_file(path)
    if path.suffix != ZSTD_SUFFIX:
        return file
    from vestige._runtime.zstd import zstd

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}
    return cast(BinaryIO, _Decompressed(zstd.ZstdFile(file, options=options), file, path))


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with open_lines(path) as file:
            return file.read(size)
    except (UnreadableError, OSError):
        return b""


class _Decompressed:
    """A decompressed file that closes the compressed one, and names the path in its errors."""

    def __init__(self, decompressed: ZstdFile, file: BinaryIO, path: Path) -> None:
        self._decompressed = decompressed
        self._file = file
        self._path = path
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        from vestige._runtime.zstd import zstd

        try:
            data = self._decompressed.read1(size)
            self._size += len(data)
            if self._size > DECOMPRESSED_FILE_MAX:
                limit = f"{DECOMPRESSED_FILE_MAX // MIB} MiB"
                raise UnreadableError(
                    f"{self._path}: too large (expected at most {limit} when decompressed)."
                )
            return data
        except EOFError:  # the file ends within a frame
            return b""
        except (zstd.ZstdError, ValueError) as error:
            raise UnreadableError(f"{self._path}: damaged ({error}).") from None

    def __enter__(self) -> _Decompressed:
        return self

    def __exit__(self, *_: object) -> None:
        self._decompressed.close()
        self._file.close()


class TooLong:
    """In place of a line that is longer than the limit."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


class LineReader:
    """The lines of a file, with their numbers from 1."""

    def __init__(self, file: BinaryIO, length_max: int = EVENT_LINE_MAX) -> None:
        self._file = file
        self._length_max = length_max
        self.torn = b""
        """The bytes after the last newline, when the lines are complete; the first ones only, if
        there are many."""

    def __iter__(self) -> Iterator[tuple[int, bytes | TooLong]]:
        number = 0
        rest = b""
        while chunk := self._file.read(CHUNK):
            lines = (rest + chunk).split(b"\n") if b"\n" in chunk else None
            if lines is None:
                rest += chunk
                if len(rest) > self._length_max:
                    number += 1
                    size, behind = self._skip(len(rest))
                    if behind is None:
                        self.torn = rest[:TORN_MAX]
                        return
                    yield number, TooLong(size)
                    rest = b""
                    lines = behind.split(b"\n")
                else:
                    continue
            rest = lines.pop()
            for line in lines:
                number += 1
                yield number, line if len(line) <= self._length_max else TooLong(len(line))
        self.torn = rest[:TORN_MAX]

    def _skip(self, size: int) -> tuple[int, bytes | None]:
        """Skip to the end of a line that is too long. None: the file ends within it."""
        while chunk := self._file.read(CHUNK):
            end = chunk.find(b"\n")
            if end >= 0:
                return size + end, chunk[end + 1 :]
            size += len(chunk)
        return size, None


class Problems:
    """Problems of one source, up to a limit."""

    def __init__(self, file: str) -> None:
        self.list: list[Problem] = []
        self.count = 0
        self._file = file

    def add(self, place: str, rule: str, message: str, hint: str = "") -> None:
        self.count += 1
        if self.count <= PROBLEMS_MAX:
            self.list.append(Problem(self._file, place, rule, message, hint, "warning"))


def iter_lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not blank; the others are problems."""
    with open_lines(path) as file:
        lines = LineReader(file)
        for number, line in lines:
            if isinstance(line, TooLong):
                message = f"{line.size_bytes} bytes (at most {EVENT_LINE_MAX}); skipped."
                problems.add(f"line {number}", "line-too-long", message)
            elif line and not line.isspace():
                yield number, line
        if lines.torn.strip():
            problems.add(
                "end",
                "line-torn",
                "the last line is incomplete; skipped.",
                "Its writer was killed, or is still writing.",
            )


class JsonLines(Generic[Entry]):
    """The JSON objects of a file of lines. Lines that are none are problems."""

    def __init__(self, entry: type[Entry]) -> None:
        """`entry` is a msgspec struct whose fields accept anything; others are not decoded."""
        self._type = entry
        self._decode = msgspec.json.Decoder(entry).decode

    def read(self, path: Path, problems: Problems) -> Iterator[tuple[int, int, Entry]]:
        """Yield the number, the size and the entry of each line."""
        for number, line in iter_lines(path, problems):
            try:
                entry = self.decode(line)
            except ValueError as error:
                problems.add(f"line {number}", "line-invalid", f"{error}; skipped.")
                continue
            yield number, len(line), entry

    def decode(self, line: bytes) -> Entry:
        """Decode one line. Raise ValueError if it is not a JSON object."""
        try:
            return self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode_loosely(line)

    def _decode_loosely(self, line: bytes) -> Entry:
        """Decode a line with invalid UTF-8, lone surrogates or NaN."""
        try:
            value = json.loads(line.decode("utf-8-sig", "replace"))
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
        except ValueError:
            raise ValueError("not valid JSON") from None
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        try:
            return msgspec.convert(value, self._type)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ValueError(f"not an entry of this format ({error})") from None
